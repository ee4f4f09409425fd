// SPDX-License-Identifier: Apache-2.0
// regard generate: a language model goes on with a text.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/sampling_flags.h"
#include "cli/screen.h"
#include "cli/weight_flags.h"
#include "regard/tasks/generate.h"
#include "regard/tasks/language_model.h"

namespace regard::cli {
namespace {

constexpr std::int64_t kMost = 1000000000;

struct GenerateFlags {
  std::string model;
  std::string tokenizer;
  std::vector<std::string> prompts;
  ops::WeightStorage weights = ops::WeightStorage::kAsStored;
  tasks::GenerateOptions options;
};

constexpr const char* kAbout =
    R"(The model is a Hugging Face folder or a GGUF file of Llama, Mistral, SmolLM,
Qwen, Gemma, Phi-3 or GPT-2, or a file that llama2.c exported (version 0), with
its tokenizer.bin. Only the texts go to standard output, prompts included, token
by token; the speed goes to standard error. Several prompts are generated as one
batch, and their texts are printed one after the other with an empty line
between them. A text is the same alone and in a batch, with either cache and any
number of threads.)";

constexpr const char* kExamples =
    R"(Examples:
  regard generate --model stories260K.bin --tokenizer tok512.bin
      a story, by greedy decoding
  regard generate --model stories260K.gguf --prompt "The cat" \
      --temperature 0.8 --top-p 0.9 --seed 7
      sampled; another seed gives another story
  regard generate --model stories260K.gguf --prompt "One day" --prompt "Lily" \
      --cache paged --max-tokens 50
      a batch of two prompts, with a paged KV cache)";

// Writes texts in order, each as far as it is known: the first one as it comes,
// the others once those before them have ended.
class InOrder {
 public:
  explicit InOrder(const std::vector<std::string>& prompts)
      : waiting_(prompts) {
    write(0);
  }

  void add(std::int64_t text, std::string_view more) {
    waiting_[static_cast<std::size_t>(text)] += more;
    if (static_cast<std::size_t>(text) == current_) write(current_);
  }

  void finish() {
    for (; current_ < waiting_.size(); ++current_) {
      write(current_);
      print(current_ + 1 < waiting_.size() ? "\n\n" : "\n");
    }
  }

 private:
  void write(std::size_t text) {
    print_written(waiting_[text]);
    waiting_[text].clear();
  }

  std::vector<std::string> waiting_;
  std::size_t current_ = 0;
};

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

void run_generate(const GenerateFlags& flags) {
  check_sampling_flags(flags.options.sampling);
  const tasks::LoadedModel loaded = tasks::load_language_model(
      flags.model,
      flags.tokenizer.empty()
          ? std::nullopt
          : std::optional<std::filesystem::path>(flags.tokenizer),
      flags.weights);
  std::vector<std::string> prompts = flags.prompts;
  if (prompts.empty()) prompts.emplace_back();
  std::optional<InOrder> out;
  const auto start = std::chrono::steady_clock::now();
  auto first = start;
  const auto written =
      tasks::generate(loaded, prompts, flags.options,
                      [&](std::int64_t text, std::string_view more) {
                        // Only now: what is refused must leave nothing on
                        // standard output.
                        if (!out) {
                          first = std::chrono::steady_clock::now();
                          out.emplace(prompts);
                        }
                        out->add(text, more);
                      });
  const auto end = std::chrono::steady_clock::now();
  if (!out) out.emplace(prompts);
  out->finish();
  std::int64_t read = 0, made = 0;
  for (const tasks::Continuation& c : written) {
    read += c.prompt_tokens;
    made += c.tokens;
  }
  // The first token of each text comes with the prompt.
  const double prompt_seconds = seconds_between(start, first);
  const double seconds = seconds_between(first, end);
  const auto later = made - std::ssize(written);
  std::string speed = fmt::format("{} tokens", made);
  if (later > 0 && seconds > 0) {
    speed +=
        fmt::format(", {:.0f} tokens/s", static_cast<double>(later) / seconds);
  }
  if (prompt_seconds > 0) {
    speed += fmt::format("; prompts: {} tokens, {:.0f} tokens/s", read,
                         static_cast<double>(read) / prompt_seconds);
  }
  std::fflush(stdout);
  std::fprintf(stderr, "regard: %s\n", speed.c_str());
}

}  // namespace

Command add_generate(App& program) {
  const auto flags = std::make_shared<GenerateFlags>();
  App* app = program.add_subcommand("generate",
                                    "Continue a text with a language model");
  app->footer(fmt::format("{}\n\n{}", kAbout, kExamples));
  app->add_option("--model", flags->model,
                  "The model: a Hugging Face folder, GGUF or llama2.c")
      ->type_name("PATH")
      ->required();
  app->add_option("--tokenizer", flags->tokenizer,
                  "A tokenizer's folder or file, such as the tokenizer.bin of "
                  "llama2.c; not needed if the model contains one")
      ->type_name("PATH");
  app->add_option("--prompt", flags->prompts,
                  "The beginning of the text; repeat it for several texts")
      ->type_name("TEXT")
      ->may_be_empty();
  app->add_option("--max-tokens", flags->options.max_tokens,
                  "Write at most N tokens after each prompt")
      ->type_name("N")
      ->check(whole_between(0, kMost))
      ->capture_default_str();
  add_sampling_flags(*app, flags->options.sampling);
  app->add_choice<KVCacheKind>("--cache", flags->options.cache,
                               {{"contiguous", KVCacheKind::kContiguous},
                                {"paged", KVCacheKind::kPaged}},
                               "KV cache: contiguous or paged")
      ->type_name("KIND")
      ->group("Machine");
  add_weights_flag(*app, flags->weights);
  add_threads_flag(*app, flags->options.threads.count)->group("Machine");
  return {app, [flags] { run_generate(*flags); }};
}

}  // namespace regard::cli
