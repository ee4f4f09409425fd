// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/help_formatter.h"
#include "cli/screen.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "regard/core/error.h"
#include "regard/core/version.h"

namespace regard::cli {
namespace {

constexpr int kInputsFault = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter =
    R"(Without a command, regard translates a few sentences between English and Chinese
with the model that comes with it, and shows where each piece looked.

Examples:
  regard
  regard translate "I would like a cup of tea."
  regard view
  regard attend -x x.npy --heads 8 --mask causal --out y.npy
  regard layer mha.safetensors -x x.npy --heads 8 --out y.npy
  regard explain --heads 8 --len 4096 --head-dim 64 --mask causal
  regard train translate --src train.en --tgt train.de --out en-de
  regard translate --model en-de "A man rides a bicycle."
  regard generate --model model.gguf --prompt "Once upon a time"
  regard info

Exit codes: 0 done, 1 an input is at fault, 2 the command line is.)";

int complain(int code, const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "regard: %s\n", on_one_line(what).c_str());
  return code;
}

// "regard attend --help" where the user got as far as the command.
std::string help_command(const CLI::App& program) {
  std::string text = "regard";
  const CLI::App* at = &program;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    text += " " + at->get_name();
  }
  return text + " --help";
}

// An empty value is a variable of a script that was never set. It must not mean
// "not given": then --model "" would translate with another model, and --host
// "" would listen to all the world. A prompt alone may be empty.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_name() == "--prompt") continue;
    for (const std::string& value : option->results()) {
      if (value.empty()) {
        throw UsageError(option->get_name() + ": the value is empty");
      }
    }
  }
  for (const CLI::App* command : app.get_subcommands()) {
    refuse_empty_values(*command);
  }
}

int parse_and_run(CLI::App& program, const std::vector<Command>& commands,
                  int argc, const char* const* argv) {
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      throw UsageError(std::string(error.what()));
    }
    std::ostringstream text;
    program.exit(error, text, text);
    print(text.str());
    return 0;
  }
  refuse_empty_values(program);
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      command.run();
      return 0;
    }
  }
  run_translation_demonstration();
  return 0;
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  CLI::App program("regard: multi-head attention for CPUs", "regard");
  program.set_version_flag("--version", std::string("regard ") + version(),
                           "Print the version and exit");
  program.set_help_flag("-h,--help", "Print this help and exit");
  program.require_subcommand(0, 1);
  program.footer(kFooter);
  program.formatter(std::make_shared<HelpFormatter>());
  const std::vector<Command> commands = {
      add_attend(program), add_layer(program),     add_explain(program),
      add_train(program),  add_translate(program), add_score(program),
      add_view(program),   add_generate(program),  add_info(program)};
  try {
    return parse_and_run(program, commands, argc, argv);
  } catch (const UsageError& error) {
    return complain(kUsage, std::string(error.what()) + " (see " +
                                help_command(program) + ")");
  } catch (const std::bad_alloc&) {
    return complain(kInputsFault, "there is not enough memory");
  } catch (const std::exception& error) {
    return complain(kInputsFault, error.what());
  }
}

}  // namespace regard::cli
