// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/screen.h"
#include "cli/stopped.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "core/plain_message.h"
#include "regard/core/error.h"
#include "regard/core/version.h"

namespace regard::cli {
namespace {

constexpr int kInputsFault = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter =
    R"(Without a command, regard translates a few sentences between English and Chinese
with the bundled model, and shows which source words each word attends to.

Examples:
  regard
  regard translate "I would like a cup of tea."
  regard view
  regard attend -x x.npy --heads 8 --mask causal --out y.npy
  regard layer mha.safetensors -x x.npy --heads 8 --out y.npy
  regard explain --heads 8 --len 4096 --head-dim 64 --mask causal
  regard train translate --src train.en --tgt train.de --out en-de
  regard translate --model en-de "A man rides a bicycle."
  regard classify --explain "The soup was far from good."
  regard answer --context examples/story.txt "Where is Ada?"
  regard summarize examples/dialogue.txt
  regard recommend --why --history "Harbour 1, Harbour 2"
  regard caption --show examples/shapes.png
  regard video examples/shapes/orbits.npy
  regard generate --model model.gguf --prompt "Once upon a time"
  regard search --model all-MiniLM-L6-v2 --corpus notes.txt "trains to Paris"
  regard chat --model SmolLM2-135M-Instruct.gguf
  regard info

Exit codes: 0 success, 1 bad input, 2 bad command line, 130 Ctrl-C.)";

// ./run starts the program under its own name.
std::string typed_command(int argc, const char* const* argv) {
  const std::string typed = argc > 0 ? argv[0] : "";
  return typed == "run" || typed.ends_with("/run") ? typed : "regard";
}

void check_ranks(const Command& command, Ranks& ranks) {
  if (command.takes_ranks) return ranks.start();
  if (ranks.launched() == 1) return;
  throw UsageError(
      "mpirun started several processes, but this command works in one; train, "
      "embed, classify and translate can use several");
}

int parse_and_run(App& program, const std::vector<Command>& commands, int argc,
                  const char* const* argv, Ranks& ranks) {
  if (argc > 1 && std::string_view(argv[1]) == "bench") {
    throw UsageError(
        "there is no command 'bench': ./run bench in the source folder has the "
        "benchmarks");
  }
  if (const auto text = program.parse(argc, argv)) {
    if (ranks.first()) print(*text);
    return 0;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      check_ranks(command, ranks);
      command.run();
      return 0;
    }
  }
  check_ranks({}, ranks);
  run_translation_demonstration(typed_command(argc, argv));
  return 0;
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  App program("regard", "regard: multi-head attention for CPUs");
  program.version(std::string("regard ") + version());
  program.footer(kFooter);
  Ranks ranks;
  const auto complain = [&ranks](int code, const std::string& what) {
    ranks.end_all(code, what);
    return code;
  };
  const std::vector<Command> commands = {
      add_attend(program),    add_layer(program),
      add_explain(program),   add_train(program, ranks),
      add_sample(program),    add_translate(program, ranks),
      add_caption(program),   add_classify(program, ranks),
      add_answer(program),    add_recommend(program),
      add_score(program),     add_view(program),
      add_generate(program),  add_chat(program),
      add_summarize(program), add_embed(program, ranks),
      add_search(program),    add_quantize(program),
      add_video(program),     add_info(program),
  };
  try {
    return parse_and_run(program, commands, argc, argv, ranks);
  } catch (const UsageError& error) {
    return complain(kUsage,
                    std::string(error.what()) + " (see " +
                        program.help_command(typed_command(argc, argv)) + ")");
  } catch (const Stopped& stopped) {
    return 128 + stopped.signal;
  } catch (const std::bad_alloc&) {
    return complain(kInputsFault, "there is not enough memory");
  } catch (const std::exception& error) {
    return complain(kInputsFault, plain_message(error.what()));
  }
}

}  // namespace regard::cli
