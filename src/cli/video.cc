// SPDX-License-Identifier: Apache-2.0
// regard video: what clips show.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/label_report.h"
#include "cli/screen.h"
#include "cli/usage_error.h"
#include "cli/view_model.h"
#include "cli/view_page.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/video_classifier.h"
#include "regard/text/table.h"
#include "regard/view/clip.h"
#include "regard/view/translation.h"

namespace regard::cli {
namespace {

struct VideoFlags {
  std::vector<std::string> clips;
  std::string model, input;
  std::int64_t views = 1;
  std::int64_t top = 1;
  bool score = false;
  bool view = false;
  bool json = false;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
  int threads = 0;
  PageFlags page;
};

constexpr const char* kFooter =
    R"(Clips are videos or NumPy arrays (.npy) as described in `regard train video
--help`. They come from the command line, or from a table (.tsv, .csv, .jsonl)
with a column `clip`. The output has a line for each: label, tab, probability;
with --top K the K most likely labels. --score compares with the column `label`
of the table and prints accuracy, macro F1 and the confusion matrix. --views K
averages K predictions, one for the whole clip and the others for parts of its
time.

--view opens a page with one clip as a film strip, and the attention of every
head over its frames; --export writes that page into a file. `regard view
--help` says who can reach it.

Examples:
  regard video examples/shapes/orbits.npy
  regard video examples/shapes/orbits.npy --view
  regard video --model poses --top 3 clip.npy
  regard video --model poses --input test.tsv --score --views 4)";

using Labels = std::vector<tasks::LabelProbability>;

// The pictures that the model reads.
tasks::VideoPictures pictures_of(const tasks::VideoConfig& config) {
  if (config.format.kind != tasks::ClipKind::kPictures) return {};
  const Shape& frame = config.format.frame;
  return {frame[0], frame[1], frame.size() == 3};
}

std::vector<Labels> classify(const tasks::VideoClassifier& model,
                             const VideoFlags& flags,
                             const std::vector<std::string>& names,
                             const std::filesystem::path& folder) {
  const auto clips =
      tasks::load_clips(names, folder, pictures_of(model.config()));
  for (std::size_t i = 0; i < clips.size(); ++i) {
    tasks::check_format(model.config(), clips[i], names[i]);
  }
  return model.classify(clips, flags.views, {.count = flags.threads});
}

void score(const tasks::VideoClassifier& model, const VideoFlags& flags,
           const std::filesystem::path& folder) {
  const auto data = tasks::read_labelled_texts(flags.input, "clip", "label");
  require(data.size() > 0, "video", "there are no clips in '", flags.input,
          "'");
  std::vector<std::string> said;
  for (const Labels& found : classify(model, flags, data.texts, folder)) {
    said.push_back(
        model.config().labels[static_cast<std::size_t>(found.front().label)]);
  }
  const auto result = tasks::score_labels(data.labels, said);
  print(flags.json ? json_of(result, "clips") : report(result, "clip"));
}

void show_in_browser(const tasks::VideoClassifier& model,
                     const VideoFlags& flags) {
  const std::string& name = flags.clips.front();
  const auto clips = tasks::load_clips({name}, {}, pictures_of(model.config()));
  tasks::check_format(model.config(), clips.front(), name);
  // A video has more to show than the few pixels that the model reads.
  std::optional<Tensor> shown;
  if (std::filesystem::path(name).extension() != ".npy") {
    shown = tasks::load_clip(name, {.height = 96, .width = 96, .color = true});
  }
  view::Trace trace =
      view::trace_clip(model, clips.front(),
                       {.name = std::filesystem::path(name).filename().string(),
                        .shown = shown ? &*shown : nullptr,
                        .threads = {.count = flags.threads}});
  if (flags.model.empty()) {
    trace.model = "clips";
  } else {
    trace.model = name_of(flags.model);
    trace.note = view::read_note(flags.model);
  }
  show_page(trace, flags.page);
}

void run(const VideoFlags& flags) {
  if (flags.input.empty() == flags.clips.empty()) {
    throw UsageError("give clips or --input, and not both");
  }
  if (flags.score && (flags.input.empty() || flags.top > 1)) {
    throw UsageError("--score goes with --input, without --top");
  }
  const bool page = flags.view || !flags.page.export_to.empty();
  if (page && (flags.clips.size() != 1 || flags.json || flags.top > 1 ||
               flags.views > 1)) {
    throw UsageError(
        "--view and --export show one clip, without --json, --top and "
        "--views");
  }
  check_page_options(flags.page, page);
  const auto model = tasks::VideoClassifier::load(
      flags.model.empty() ? bundled_model("clips") : flags.model,
      flags.weights);
  if (flags.model.empty()) {
    std::fputs(
        "(using the tiny bundled model, trained on generated clips of a moving "
        "shape; --model names another)\n",
        stderr);
  }
  if (page) return show_in_browser(model, flags);
  const auto folder = std::filesystem::path(flags.input).parent_path();
  if (flags.score) return score(model, flags, folder);
  const std::vector<std::string> names =
      flags.input.empty()
          ? flags.clips
          : text::read_table(flags.input, std::vector<std::string>{"clip"})
                .columns[0];
  const std::vector<Labels> found = classify(model, flags, names, folder);
  const std::vector<std::string>& labels = model.config().labels;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!flags.json) {
      print(line_of(found[i], labels, flags.top));
      continue;
    }
    const auto said = json_of(found[i], labels, flags.top);
    // The name of a file may be any bytes.
    print_written(Json{{"clip", names[i]}, {"labels", said}}.dump(
                      {.replace_invalid = true}) +
                  "\n");
  }
}

}  // namespace

Command add_video(App& program) {
  const auto flags = std::make_shared<VideoFlags>();
  App* app = program.add_subcommand("video", "Classify video and motion clips");
  app->footer(kFooter);
  app->add_option("CLIPS", flags->clips, "Videos or .npy files")
      ->type_name("FILE");
  app->add_option("--model", flags->model,
                  "Folder that `regard train video` made; if not given, a tiny "
                  "bundled one for moving shapes")
      ->type_name("FOLDER");
  app->add_option("--input", flags->input, "A table of clips")
      ->type_name("FILE");
  app->add_option("--views", flags->views, "Predictions per clip to average")
      ->check(whole_between(1, 100))
      ->capture_default_str();
  app->add_option("--top", flags->top, "Labels shown per clip")
      ->check(whole_between(1, 1000000))
      ->capture_default_str();
  app->add_flag("--score", flags->score, "Compare with the labels of --input");
  app->add_flag("--view", flags->view,
                "Show the attention of every head in the browser");
  app->add_flag("--json", flags->json, "JSON, a line for each clip");
  add_page_options(*app, flags->page, "The page");
  add_weights_flag(*app, flags->weights);
  app->add_option("--threads", flags->threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
