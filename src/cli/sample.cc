// SPDX-License-Identifier: Apache-2.0
// regard sample: data to try a task with.
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/screen.h"
#include "io/atomic_file.h"
#include "regard/core/error.h"
#include "regard/tasks/samples.h"

namespace regard::cli {
namespace {

struct SampleFlags {
  std::string task, out;
  std::uint64_t seed = 1;
};

constexpr const char* kFooter =
    R"(Writes files in the format of the task, and a README.md with the commands that
train and score. They are made up by rules, a function of the task and --seed,
and free to use for anything. A small model learns them within two minutes.

Example:
  regard sample classify --out reviews && cat reviews/README.md
  regard sample recommend --out series
  regard sample answer --out stories
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

void run(const SampleFlags& flags) {
  const fs::path folder = flags.out;
  make_folder(folder);
  const auto files = tasks::make_sample(flags.task, flags.seed);
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
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
