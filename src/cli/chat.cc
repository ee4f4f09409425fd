// SPDX-License-Identifier: Apache-2.0
// regard chat: a talk with a language model.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/sampling_flags.h"
#include "cli/screen.h"
#include "cli/stopped.h"
#include "cli/weight_flags.h"
#include "core/plain_message.h"
#include "regard/core/error.h"
#include "regard/core/interrupt.h"
#include "regard/tasks/chat.h"

namespace regard::cli {
namespace {

struct ChatFlags {
  std::string model;
  std::string tokenizer;
  // A talk wants an answer soon more than the last digits.
  ops::WeightStorage weights = ops::WeightStorage::kAsStored;
  tasks::ChatOptions options;
};

constexpr const char* kAbout =
    R"(The model is a chat model in a format that 'regard generate' reads; the chat
template is in its files (ChatML, Llama 2, Llama 3, Mistral, Gemma, Phi-3 or
Zephyr). Ctrl-C ends an answer, Ctrl-D or /quit the chat. If standard input is
not a terminal, each of its lines is a turn, and standard output has the answers
only.)";

constexpr const char* kExamples =
    R"(Examples:
  regard chat --model SmolLM2-135M-Instruct.gguf
  regard chat --model Qwen2.5-0.5B-Instruct --system "Answer in one sentence." \
      --temperature 0.7 --top-p 0.9
  echo "What is the capital of France?" | regard chat --model model.gguf)";

constexpr const char* kCommands =
    R"(/help           this help
/reset          start a new chat
/system TEXT    start a new chat with this system message; without TEXT, with
                that of the template
/quit           end the chat; as Ctrl-D
To begin a message with a slash, type two. Ctrl-C ends an answer.
)";

volatile std::sig_atomic_t interrupted = 0;
extern "C" void note_interrupt(int) { interrupted = 1; }

// Ctrl-C is noted for as long as it lives. Where it `ends_reads`, a read of the
// terminal ends with it, so that the prompt comes again; elsewhere calls of the
// system go on: a write to a terminal that holds its output (Ctrl-S) would
// fail.
class CatchInterrupt {
 public:
  explicit CatchInterrupt(bool ends_reads) {
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    action.sa_flags = ends_reads ? 0 : SA_RESTART;
    sigaction(SIGINT, &action, &before_);
  }
  ~CatchInterrupt() { sigaction(SIGINT, &before_, nullptr); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  struct sigaction before_ {};
};

class Conversation {
 public:
  Conversation(tasks::Chat& chat, std::string system)
      : chat_(chat),
        system_(std::move(system)),
        on_terminal_(isatty(STDIN_FILENO) == 1) {}

  void run() {
    const CatchInterrupt catching(/*ends_reads=*/false);
    if (on_terminal_) {
      tell(fmt::format("chat template: {}; /help has the commands\n",
                       chat_.chat_template().name()));
    }
    while (const std::optional<std::string> line = next_line()) {
      if (line->empty()) continue;
      if (!line->starts_with('/')) {
        say(*line);
      } else if (line->starts_with("//")) {
        say(line->substr(1));
      } else if (!obey(*line)) {
        return;
      }
    }
  }

 private:
  static void tell(const std::string& text) {
    std::fflush(stdout);
    std::fputs(text.c_str(), stderr);
  }

  std::optional<std::string> next_line() {
    for (;;) {
      if (on_terminal_) tell("> ");
      std::string line;
      interrupted = 0;
      if (read(line)) {
        constexpr std::string_view kMark = "\xEF\xBB\xBF";  // byte-order mark
        const bool first = std::exchange(is_first_, false);
        if (first && line.starts_with(kMark)) line.erase(0, kMark.size());
        if (line.ends_with('\r')) line.pop_back();
        return line;
      }
      if (interrupted == 0) {  // the end
        // std::cin itself takes a read that fails for the end.
        if (std::ferror(stdin) != 0) {
          throw_io_error("standard input", "it cannot be read");
        }
        if (on_terminal_) tell("\n");
        return std::nullopt;
      }
      if (!on_terminal_) throw Stopped{SIGINT};
      std::cin.clear();
      std::clearerr(stdin);
      tell("\n/quit or Ctrl-D ends the chat\n");
    }
  }

  static bool read(std::string& line) {
    const CatchInterrupt catching(/*ends_reads=*/true);
    return static_cast<bool>(std::getline(std::cin, line));
  }

  void say(const std::string& text) {
    interrupted = 0;
    const auto wanted = [] { return interrupted != 0; };
    const InterruptScope scope(wanted);
    try {
      const auto answer =
          chat_.say(text, [](std::string_view more) { print_written(more); });
      print("\n");
      if (answer.interrupted && !on_terminal_) throw Stopped{SIGINT};
    } catch (const InvalidArgument& error) {
      // Too long, perhaps: the chat goes on without it.
      if (!on_terminal_) throw;
      tell(fmt::format("regard: {}; /reset begins anew\n",
                       plain_message(error.what())));
    }
  }

  // Returns whether the chat goes on.
  bool obey(const std::string& line) {
    const std::size_t blank = line.find(' ');
    const std::string command = line.substr(0, blank);
    const std::string rest =
        blank == std::string::npos ? "" : line.substr(blank + 1);
    if (command == "/quit" && rest.empty()) return false;
    if (command == "/help" && rest.empty()) {
      tell(kCommands);
    } else if (command == "/reset" && rest.empty()) {
      chat_.reset(system_);
    } else if (command == "/system") {
      reset(rest);
    } else {
      tell(fmt::format("regard: there is no command '{}'; /help has them\n",
                       line));
    }
    return true;
  }

  void reset(const std::string& system) {
    try {
      chat_.reset(system);
      system_ = system;
    } catch (const InvalidArgument& error) {
      tell(fmt::format("regard: {}\n", plain_message(error.what())));
    }
  }

  tasks::Chat& chat_;
  std::string system_;
  bool on_terminal_;
  bool is_first_ = true;  // the line that is read next
};

void run_chat(const ChatFlags& flags) {
  check_sampling_flags(flags.options.sampling);
  const tasks::LoadedModel loaded = tasks::load_language_model(
      flags.model,
      flags.tokenizer.empty()
          ? std::nullopt
          : std::optional<std::filesystem::path>(flags.tokenizer),
      flags.weights);
  tasks::Chat chat(loaded, flags.options);
  Conversation(chat, flags.options.system).run();
}

}  // namespace

Command add_chat(App& program) {
  const auto flags = std::make_shared<ChatFlags>();
  App* app = program.add_subcommand("chat", "Chat with a language model");
  app->footer(fmt::format("{}\n\n{}\n\nIn the chat:\n{}", kAbout, kExamples,
                          kCommands));
  app->add_option("--model", flags->model,
                  "The model: a Hugging Face folder or GGUF")
      ->type_name("PATH")
      ->required();
  app->add_option("--tokenizer", flags->tokenizer,
                  "A tokenizer's folder or file, if the model has none")
      ->type_name("PATH");
  app->add_option("--system", flags->options.system,
                  "The system message: how to answer; if not given, that of "
                  "the template")
      ->type_name("TEXT")
      ->may_be_empty();
  app->add_option("--max-tokens", flags->options.max_tokens,
                  "An answer has at most N tokens")
      ->type_name("N")
      ->check(whole_between(1, 1000000000))
      ->capture_default_str();
  add_sampling_flags(*app, flags->options.sampling);
  add_weights_flag(*app, flags->weights);
  add_threads_flag(*app, flags->options.threads.count)->group("Machine");
  return {app, [flags] { run_chat(*flags); }};
}

}  // namespace regard::cli
