// SPDX-License-Identifier: Apache-2.0
// regard sample: data to try a task with.
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/screen.h"
#include "cli/usage_error.h"
#include "io/atomic_file.h"
#include "regard/core/error.h"
#include "regard/tasks/samples.h"

namespace regard::cli {
namespace {

struct SampleFlags {
  std::string task, out;
  std::uint64_t seed = 1;
  tasks::ListOpsOptions list_ops;
  bool no_brackets = false;
};

const std::vector<std::string> kOfListOps = {"--examples", "--min-length",
                                             "--max-length", "--no-brackets"};

constexpr const char* kFooter =
    R"(Writes files in the format of the task, and a README.md with the commands that
train and score. They are made up by rules, a function of the task and --seed,
and free to use for anything. A small model learns them within two minutes; but
listops is a benchmark in its own size, 100,000 long expressions.

Example:
  regard sample classify --out reviews && cat reviews/README.md
  regard sample recommend --out series
  regard sample listops --out listops
  regard sample answer --out stories
  regard sample spans --out registers
  regard sample choices --out exams
  regard sample summarize --out dialogues
  regard sample caption --out shapes
  regard sample video --out clips)";

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw_io_error("sample", "cannot make the folder '", folder.string(),
                   "': ", error.message());
  }
}

std::vector<tasks::SampleFile> files_of(const SampleFlags& flags,
                                        const App& app) {
  if (flags.task == "listops") {
    tasks::ListOpsOptions options = flags.list_ops;
    options.seed = flags.seed;
    options.brackets = !flags.no_brackets;
    return tasks::make_list_ops(options);
  }
  for (const std::string& option : kOfListOps) {
    if (app.given(option)) {
      throw UsageError(option + " goes with listops; the task is " +
                       flags.task);
    }
  }
  return tasks::make_sample(flags.task, flags.seed);
}

void run(const SampleFlags& flags, const App& app) {
  const fs::path folder = flags.out;
  const auto files = files_of(flags, app);
  make_folder(folder);
  for (const tasks::SampleFile& file : files) {
    require(!fs::exists(folder / file.name), "sample", "'",
            (folder / file.name).string(),
            "' is there already; choose another --out");
  }
  for (const tasks::SampleFile& file : files) {
    make_folder((folder / file.name).parent_path());
    io::AtomicFile out(folder / file.name, "sample");
    out.write(file.text);
    out.commit();
  }
  print(fmt::format("{} files are in {}; its README.md says how to go on\n",
                    files.size(), flags.out));
}

}  // namespace

Command add_sample(App& program) {
  const auto flags = std::make_shared<SampleFlags>();
  App* app = program.add_subcommand("sample", "Write data to try a task with");
  app->footer(kFooter);
  app->add_option("TASK", flags->task, "What to try")
      ->check(member_of(tasks::sample_tasks()))
      ->required();
  app->add_option("--out", flags->out, "Folder for the files")
      ->type_name("FOLDER")
      ->required();
  app->add_option("--seed", flags->seed, "Of all that is random")
      ->capture_default_str();
  const char* group = "Of listops";
  tasks::ListOpsOptions& list_ops = flags->list_ops;
  app->add_option("--examples", list_ops.train, "To learn from")
      ->check(whole_between(1, 10000000))
      ->capture_default_str()
      ->group(group);
  app->add_option("--min-length", list_ops.min_length, "Tokens, at least")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group(group);
  app->add_option("--max-length", list_ops.max_length, "Tokens, at most")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group(group);
  app->add_flag("--no-brackets", flags->no_brackets,
                "Leave out the brackets that close a list")
      ->group(group);
  return {app, [flags, app] { run(*flags, *app); }};
}

}  // namespace regard::cli
