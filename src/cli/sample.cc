// SPDX-License-Identifier: Apache-2.0
// regard sample: data to try a task with.
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
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
  tasks::SeriesOptions series;
};

const std::vector<std::string> kOfListOps = {"--examples", "--min-length",
                                             "--max-length", "--no-brackets"};

constexpr const char* kFooter =
    R"(Writes generated files in the format of the task, and a README.md with the
commands that train and score. The data depends only on the task and --seed, and
is free to use for anything. A small model learns it within two minutes, except
for listops, which has the size of the published benchmark (100,000 long
expressions). For recommend you choose the size: a reader has 12 lines on
average, a genre 24 books.

Examples:
  regard sample classify --out reviews && cat reviews/README.md
  regard sample recommend --out series
  regard sample recommend --readers 1000000 --genres 400 --out many
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

const std::vector<std::string> kOfSeries = {"--readers", "--genres"};

void refuse_others(const SampleFlags& flags, const App& app,
                   const std::vector<std::string>& options,
                   const std::string& task) {
  for (const std::string& option : options) {
    if (flags.task != task && app.given(option)) {
      throw UsageError(option + " goes with " + task + "; the task is " +
                       flags.task);
    }
  }
}

std::vector<tasks::SampleFile> files_of(const SampleFlags& flags) {
  if (flags.task == "listops") {
    tasks::ListOpsOptions options = flags.list_ops;
    options.seed = flags.seed;
    options.brackets = !flags.no_brackets;
    return tasks::make_list_ops(options);
  }
  return tasks::make_sample(flags.task, flags.seed);
}

void run(const SampleFlags& flags, const App& app) {
  const fs::path folder = flags.out;
  refuse_others(flags, app, kOfListOps, "listops");
  refuse_others(flags, app, kOfSeries, "recommend");
  const bool sized = flags.task == "recommend" &&
                     (app.given("--readers") || app.given("--genres"));
  const auto files = files_of(flags);
  make_folder(folder);
  for (const tasks::SampleFile& file : files) {
    require(!fs::exists(folder / file.name), "sample", "'",
            (folder / file.name).string(),
            "' is there already; choose another --out");
  }
  for (const tasks::SampleFile& file : files) {
    make_folder((folder / file.name).parent_path());
    io::AtomicFile out(folder / file.name, "sample");
    if (sized && file.name == "log.tsv") {
      tasks::SeriesOptions series = flags.series;
      series.seed = flags.seed;
      tasks::write_series(series,
                          [&](std::string_view part) { out.write(part); });
    } else {
      out.write(file.text);
    }
    out.commit();
  }
  print(fmt::format("{} files are in {}; its README.md says how to go on\n",
                    files.size(), flags.out));
}

}  // namespace

Command add_sample(App& program) {
  const auto flags = std::make_shared<SampleFlags>();
  App* app =
      program.add_subcommand("sample", "Generate sample data for a task");
  app->footer(kFooter);
  app->add_option("TASK", flags->task, "The task")
      ->check(member_of(tasks::sample_tasks()))
      ->required();
  app->add_option("--out", flags->out, "Folder for the files")
      ->type_name("FOLDER")
      ->required();
  app->add_option("--seed", flags->seed, "Random seed")->capture_default_str();
  const char* group = "Of listops";
  tasks::ListOpsOptions& list_ops = flags->list_ops;
  app->add_option("--examples", list_ops.train, "Training examples")
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
  const char* of_series = "Of recommend";
  app->add_option("--readers", flags->series.readers, "Users of the log")
      ->check(whole_between(1, 100000000))
      ->capture_default_str()
      ->group(of_series);
  app->add_option("--genres", flags->series.genres,
                  "Genres of three series of eight books")
      ->check(whole_between(1, 1000000))
      ->capture_default_str()
      ->group(of_series);
  return {app, [flags, app] { run(*flags, *app); }};
}

}  // namespace regard::cli
