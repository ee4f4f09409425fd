// SPDX-License-Identifier: Apache-2.0
// regard view: what every head looks at, in the browser.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/usage_error.h"
#include "cli/view_model.h"
#include "cli/view_page.h"
#include "io/read_file.h"
#include "regard/view/imported_weights.h"
#include "regard/view/server.h"
#include "regard/view/translation.h"

namespace regard::cli {
namespace {

struct ViewFlags {
  ViewModelFlags reader;
  std::string sentence;
  std::string beside;
  std::string weights;
  std::string tokens;
  std::string attention;
  std::int64_t layer = -1;  // not said
  std::int64_t head = -1;
  PageFlags page;
};

constexpr const char* kFooter =
    R"(The page shows every layer and head at once, one head in full, or its weights as
lines between the tokens. It is served until Ctrl-C at an address of this
machine that no other machine can reach; --host changes that, and then anyone
who can reach the address can use the model. Nothing is fetched from the
network.

--weights shows the attention weights of any model: a safetensors file with
tensors [layers, heads, queries, keys], named encoder, decoder and cross if they
exist, or one [heads, queries, keys] per layer, named layer.0, layer.1, ...
--tokens is JSON: ["a", "b"] for self attention, {"source": [...], "target":
[...]} for a model with a decoder, {"queries": [...], "keys": [...]} for one
attention.

The page opens at the most telling head, whose attention depends most on the
query. --attention, --layer and --head choose another, or narrow the choice.

--export writes one file that works offline and makes no requests. --layers and
--heads choose the weights in it (0-3, or 0,5,11); small heat maps and
statistics of all heads are always included.

Examples:
  regard view
      type sentences in the browser
  regard view "The cat sleeps."
  regard view "The cat sleeps." --attention encoder --layer 2 --head 3
  regard view --model en-de "A man rides a bicycle." --export bicycle.html
  regard view --model all-MiniLM-L6-v2 \
      "The animal didn't cross the street because it was too tired." \
      --beside "The animal didn't cross the street because it was too wide."
      the heads in which "it" attends to a noun come first
  regard view --model SmolLM2-135M-Instruct.gguf "The cat" --max-tokens 20
  regard view --weights bert.safetensors --tokens tokens.json
  regard view --weights w.safetensors --tokens t.json --layers 0-3 --export w.html)";

void check(const ViewFlags& flags) {
  if (!flags.reader.model.empty() && !flags.weights.empty()) {
    throw UsageError("give --model, or --weights and --tokens, not both");
  }
  if (flags.weights.empty() != flags.tokens.empty()) {
    throw UsageError("--weights and --tokens go together");
  }
  if (!flags.weights.empty() &&
      !(flags.sentence.empty() && flags.beside.empty())) {
    throw UsageError("a sentence needs a --model to read it");
  }
  if (!flags.beside.empty() && flags.sentence.empty()) {
    throw UsageError("--beside needs a first sentence to compare with");
  }
  check_page_options(flags.page);
  if (!flags.page.export_to.empty() && flags.weights.empty() &&
      flags.sentence.empty()) {
    throw UsageError("--export needs a sentence to show");
  }
}

// Where the page opens. Throws UsageError for a head that is not there.
view::Start start_of(const ViewFlags& flags,
                     const std::vector<AttentionKind>& kinds) {
  view::Start start;
  std::string names;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    names += (i == 0 ? "" : ", ") + kinds[i].name;
    if (flags.attention == kinds[i].name) {
      start.section = static_cast<std::int64_t>(i);
    } else if (!flags.attention.empty()) {
      continue;
    }
    layers = std::max(layers, kinds[i].layers);
    heads = std::max(heads, kinds[i].heads);
  }
  if (!flags.attention.empty() && !start.section) {
    throw UsageError(fmt::format("--attention: there is {}; got '{}'", names,
                                 flags.attention));
  }
  const auto chosen = [](std::int64_t value, std::int64_t count,
                         const char* name) -> std::optional<std::int64_t> {
    if (value < 0) return {};
    if (value < count) return value;
    throw UsageError(fmt::format("--{0}: there are {0}s 0 .. {1}; got {2}",
                                 name, count - 1, value));
  };
  start.layer = chosen(flags.layer, layers, "layer");
  start.head = chosen(flags.head, heads, "head");
  return start;
}

void serve(const ViewModel& model, const std::optional<view::Trace>& trace,
           const std::optional<view::Trace>& beside, const view::Start& start,
           const ViewFlags& flags) {
  view::ServerOptions options;
  options.model =
      name_of(flags.reader.model.empty() ? flags.weights : flags.reader.model);
  options.start = start;
  if (!flags.reader.model.empty()) {
    options.note = view::read_note(flags.reader.model);
  }
  options.translate = translate_options(flags.reader);
  // Sentences side by side bring more than threads within one.
  options.translate.threads = {.count = 1};
  options.limits.computing = flags.reader.threads;
  options.beside = beside;
  if (model.encoder) options.encoder = &*model.encoder;
  if (model.language_model) options.language_model = &*model.language_model;
  options.max_tokens = flags.reader.max_tokens;
  serve_page(model.translator ? &*model.translator : nullptr, trace,
             std::move(options), flags.page);
}

void run_view(ViewFlags flags) {
  check(flags);
  if (flags.reader.model.empty() && flags.weights.empty()) {
    flags.reader.model = bundled_translator();
  }
  ViewModel model;
  std::optional<view::Trace> trace;
  std::optional<view::Trace> beside;
  std::vector<AttentionKind> kinds;
  if (flags.reader.model.empty()) {
    view::Tokens tokens =
        view::parse_tokens(io::read_file(flags.tokens, "view"), flags.tokens);
    trace = view::trace_imported(std::move(tokens),
                                 view::open_weights(flags.weights));
    trace->model = name_of(flags.weights);
    kinds = kinds_of(*trace);
  } else {
    model = load_view_model(flags.reader);
    kinds = kinds_of(model);
    if (!flags.sentence.empty()) {
      trace = trace_of(model, flags.sentence, flags.reader);
    }
    if (!flags.beside.empty()) {
      beside = trace_of(model, flags.beside, flags.reader);
    }
  }
  const view::Start start = start_of(flags, trace ? kinds_of(*trace) : kinds);
  if (trace) trace->set_start(start);
  if (flags.page.export_to.empty()) {
    return serve(model, trace, beside, start, flags);
  }
  export_page(*trace, beside, flags.page);
}

void add_input_options(App& app, ViewFlags& flags) {
  const std::string group = "Input";
  app.add_option("SENTENCE", flags.sentence, "The first text to show")
      ->type_name("TEXT");
  app.add_option("--model", flags.reader.model,
                 "A translator, as for `regard translate`; an encoder, as for "
                 "`regard embed`; or a language model, as for `regard "
                 "generate`. If not given, the bundled translator")
      ->type_name("PATH")
      ->group(group);
  app.add_option("--beside", flags.beside,
                 "A second sentence: the same head of both, side by side")
      ->type_name("TEXT")
      ->group(group);
  app.add_option("--tokenizer", flags.reader.tokenizer,
                 "The tokenizer of a language model that contains none")
      ->type_name("PATH")
      ->group(group);
  app.add_option("--max-tokens", flags.reader.max_tokens,
                 "A language model continues the text by at most N tokens")
      ->type_name("N")
      ->check(whole_between(0, 10000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--to", flags.reader.to,
                 "Target language, for a model with both directions")
      ->type_name("LANG")
      ->group(group);
  app.add_option("--beam", flags.reader.beam, "Beam width; 1: greedy")
      ->check(whole_between(1, 1000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--weights", flags.weights,
                 "Attention weights of any model, safetensors; see below")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tokens", flags.tokens, "Their tokens, JSON; see below")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--attention", flags.attention,
                 "The attention to show first: encoder, decoder or cross, or a "
                 "name in the file of weights")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--layer", flags.layer, "The layer to show first, from 0")
      ->type_name("L")
      ->check(whole_between(0, 9999))
      ->group(group);
  app.add_option("--head", flags.head, "The head to show first, from 0")
      ->type_name("H")
      ->check(whole_between(0, 9999))
      ->group(group);
  app.exclude("--weights", {"--to", "--beam", "--max-tokens", "--tokenizer"});
}

}  // namespace

Command add_view(App& program) {
  const auto flags = std::make_shared<ViewFlags>();
  App* app = program.add_subcommand(
      "view", "Show what every head attends to, in the browser");
  app->footer(kFooter);
  add_input_options(*app, *flags);
  const std::string group = "Page and server";
  add_page_options(*app, flags->page, group);
  app->add_option("--threads", flags->reader.threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str()
      ->group(group);
  return {app, [flags] { run_view(*flags); }};
}

}  // namespace regard::cli
