// SPDX-License-Identifier: Apache-2.0
// regard summarize: a language model made for chats is told to.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/sampling_flags.h"
#include "cli/screen.h"
#include "cli/weight_flags.h"
#include "regard/core/error.h"
#include "regard/tasks/chat.h"
#include "regard/text/lines.h"
#include "regard/text/utf8.h"

namespace regard::cli {
namespace {

struct SummarizeFlags {
  std::string model;
  std::string tokenizer;
  std::string file;
  std::string instruction =
      "Summarize the following text in one or two sentences.";
  ops::WeightStorage weights = ops::WeightStorage::kAsStored;
  tasks::ChatOptions options;
};

constexpr const char* kFooter =
    R"(The model is one that `regard chat` talks with. It reads the instruction, a blank
line and the text, and its answer is the summary: how good it is, the model
decides. A text that does not fit in its context is an error. ROUGE of summaries
is what `regard score --metric rouge` counts.

Examples:
  regard summarize --model SmolLM2-135M-Instruct.gguf article.txt
  regard summarize --model SmolLM2-135M-Instruct.gguf dialogue.txt \
      --instruction "Say in one sentence what they agree on.")";

std::string text_of(const std::string& file) {
  std::string text;
  for (const std::string& line : text::read_lines(file)) {
    text += (text.empty() ? "" : "\n") + line;
  }
  require(!text::is_blank(text), "summarize", "the text '", file, "' is blank");
  return text;
}

void run(const SummarizeFlags& flags) {
  check_sampling_flags(flags.options.sampling);
  require(text::find_invalid_utf8(flags.instruction) == std::string::npos,
          "summarize", "the instruction must be UTF-8");
  const std::string text = text_of(flags.file);
  const tasks::LoadedModel loaded = tasks::load_language_model(
      flags.model,
      flags.tokenizer.empty()
          ? std::nullopt
          : std::optional<std::filesystem::path>(flags.tokenizer),
      flags.weights);
  tasks::Chat chat(loaded, flags.options);
  chat.say(flags.instruction + "\n\n" + text,
           [](std::string_view more) { print_written(std::string(more)); });
  print("\n");
}

}  // namespace

Command add_summarize(App& program) {
  const auto flags = std::make_shared<SummarizeFlags>();
  flags->options.max_tokens = 128;
  App* app = program.add_subcommand("summarize",
                                    "Have a language model summarize a text");
  app->footer(kFooter);
  app->add_option("FILE", flags->file, "The text")
      ->type_name("FILE")
      ->required();
  app->add_option("--model", flags->model,
                  "The model: a Hugging Face folder or GGUF")
      ->type_name("PATH")
      ->required();
  app->add_option("--tokenizer", flags->tokenizer,
                  "A tokenizer's folder or file, where the model has none")
      ->type_name("PATH");
  app->add_option("--instruction", flags->instruction,
                  "What the model is told before the text")
      ->type_name("TEXT")
      ->capture_default_str();
  app->add_option("--max-tokens", flags->options.max_tokens,
                  "A summary has at most N tokens")
      ->type_name("N")
      ->check(whole_between(1, 1000000000))
      ->capture_default_str();
  add_sampling_flags(*app, flags->options.sampling);
  add_weights_flag(*app, flags->weights);
  add_threads_flag(*app, flags->options.threads.count)->group("Machine");
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
