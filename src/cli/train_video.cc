// SPDX-License-Identifier: Apache-2.0
// regard train video: a model that says what clips show.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/encoder_flags.h"
#include "cli/labelled_data.h"
#include "cli/number_list.h"
#include "cli/screen.h"
#include "cli/train.h"
#include "cli/training_folder.h"
#include "cli/usage_error.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/video_classifier.h"
#include "tasks/classifier_parts.h"

namespace regard::cli {
namespace {

using tasks::LabelledTexts;
using tasks::VideoData;

constexpr const char* kCommand = "train video";

struct TrainVideoFlags {
  std::string clips, valid;
  double valid_share = 0.1;
  std::int64_t size = 32;
  bool color = false;
  std::int64_t frames = 32;
  bool resample = false;
  std::string steps = "1";
  std::int64_t window = 1;
  std::int64_t patch = 8;
  EncoderFlags encoder;
  double smoothing = 0.0;
  tasks::ClipAugmentation augmentation;
  std::string mirror_pairs;
  LearningFlags learning;
};

constexpr const char* kFooter =
    R"(A list of clips is a table with a column `clip`, a file relative to the folder
of the table, and a column `label`, in UTF-8 (.tsv, .csv or .jsonl):
  clip<TAB>label
  clips/0017.npy<TAB>wave
A clip is a video that FFmpeg's libraries read, or a NumPy array (.npy):
  [frames, features]            features of each frame, by any other model
  [frames, joints, 2 or 3]      positions of the joints of a body
  [frames, height, width]       grey pictures, uint8
  [frames, height, width, 3]    pictures in red, green and blue, uint8
All clips of a table are of one kind. Videos are resized to --size x --size and
split into patches of --patch x --patch. A token also contains the change of
each number until the next frame, or until each of --steps frames later. Joints
are normalised by the middle and the size of the body; their pairwise distances
are included. --window 3 adds the frames before and after to each token.
--resample stretches short clips to --frames frames.

Data augmentation, in training only: --crop, --mirror, --rotate, --stretch,
--noise, --hide. Do not use what would change the label: mirroring, for example,
turns left into right.

The folder becomes a model for `regard video`: config.json, model.safetensors,
and a model card, README.md. Its folder `training` holds what --resume needs.
Ctrl-C saves and ends; once there is a milestone, it also writes the model so
far. The same command gives the same bits, for any number of threads, also if it
was stopped and resumed.

Examples:
  regard sample video --out shapes
  regard train video --clips shapes/train.tsv --valid shapes/valid.tsv --out m
  regard train video --clips poses.tsv --mirror --mirror-pairs 3-14 --rotate 0.3 \
      --stretch 0.2 --crop 0.3 --out poses)";

void add_data(App& app, TrainVideoFlags& f) {
  const char* group = "Data";
  app.add_option("--clips", f.clips, "Clips and their labels")
      ->type_name("FILE")
      ->required()
      ->group(group);
  add_held_out_flags(app, f.valid, f.valid_share);
  app.add_option("--size", f.size, "Width and height of a video")
      ->capture_default_str()
      ->check(whole_between(1, 1024))
      ->group(group);
  app.add_flag("--color", f.color, "Videos in color, not in grey")
      ->group(group);
  add_folder_flags(app, f.learning);
}

void add_model(App& app, TrainVideoFlags& f) {
  const char* group = "Model";
  app.add_option("--frames", f.frames,
                 "Maximum number of frames of a clip, evenly spaced")
      ->capture_default_str()
      ->check(whole_between(1, 4096))
      ->group(group);
  app.add_flag("--resample", f.resample,
               "Stretch shorter clips to --frames, too")
      ->group(group);
  app.add_option("--steps", f.steps,
                 "Include the change until so many frames later, as in 1,4")
      ->type_name("LIST")
      ->check(check_numbers)
      ->capture_default_str()
      ->group(group);
  app.add_option("--window", f.window,
                 "Frames per token, centred at its own: an odd number")
      ->check(whole_between(1, 63))
      ->capture_default_str()
      ->group(group);
  app.add_option("--patch", f.patch, "Width and height of a patch")
      ->capture_default_str()
      ->check(whole_between(1, 1024))
      ->group(group);
  add_layer_flags(app, f.encoder);
  app.add_option("--pooling", f.encoder.pooling,
                 "How the vectors of the tokens are pooled")
      ->check(member_of({"first", "mean", "attention"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--smoothing", f.smoothing, "Label smoothing")
      ->check(real_between(0, 0.95))
      ->capture_default_str()
      ->group(group);
}

void add_augmentation(App& app, TrainVideoFlags& f) {
  const char* group = "Augmentation";
  tasks::ClipAugmentation& a = f.augmentation;
  const auto share = [&](const char* name, float& value, double most,
                         const char* what) {
    app.add_option(name, value, what)
        ->check(real_between(0, most))
        ->capture_default_str()
        ->group(group);
  };
  share("--crop", a.crop, 0.95, "Leave out up to this share of a clip's time");
  app.add_flag("--mirror", a.mirror, "Swap left and right in half of the clips")
      ->group(group);
  app.add_option("--mirror-pairs", f.mirror_pairs,
                 "Joints to swap then: 3,4,5,6 or 3-6 is 3 with 4 and 5 with "
                 "6, counted from 0")
      ->type_name("LIST")
      ->check(check_numbers)
      ->group(group);
  share("--rotate", a.rotate, 3.15,
        "Rotate joints by up to this angle, in radians");
  share("--stretch", a.stretch, 0.95,
        "Scale joints along each axis by up to this share");
  share("--noise", a.noise, 10,
        "Standard deviation of the noise added to each number");
  share("--hide", a.hide, 0.95,
        "Share of joints, features or patches hidden in a clip");
}

// Throws UsageError for an option that such clips do not have.
void check_kind(const TrainVideoFlags& f, const LabelledData& lists,
                const tasks::ClipFormat& format) {
  const TrainVideoFlags unset;
  bool videos = false;
  for (const LabelledTexts* list : {&lists.training, &lists.held_out}) {
    for (const std::string& name : list->texts) {
      videos = videos || !name.ends_with(".npy");
    }
  }
  if (!videos && (f.size != unset.size || f.color)) {
    throw UsageError("--size and --color go with videos; there is none");
  }
  if (format.kind != tasks::ClipKind::kPictures && f.patch != unset.patch) {
    throw UsageError("--patch goes with pictures; frames are " +
                     tasks::to_string(format));
  }
}

VideoData load_data(const TrainVideoFlags& f, const std::string& table,
                    const LabelledTexts& list,
                    const std::vector<std::string>& labels) {
  VideoData data;
  data.clips =
      tasks::load_clips(list.texts, std::filesystem::path(table).parent_path(),
                        {f.size, f.size, f.color});
  data.labels = tasks::label_numbers(list, labels, kCommand);
  return data;
}

tasks::VideoConfig config_of(const TrainVideoFlags& f,
                             const std::vector<std::string>& labels) {
  tasks::VideoConfig config;
  config.encoder = encoder_config(f.encoder, 1);
  config.labels = labels;
  config.frames = f.frames;
  config.patch = f.patch;
  config.resample = f.resample;
  config.steps = parse_numbers(f.steps, "--steps");
  config.window = f.window;
  if (config.steps.empty() || config.steps.front() < 1) {
    throw UsageError("--steps must be frames later, from 1 on; it is '" +
                     f.steps + "'");
  }
  if (f.window % 2 == 0) {
    throw UsageError(fmt::format(
        "--window must be an odd number of frames; it is {}", f.window));
  }
  config.label_smoothing = static_cast<float>(f.smoothing);
  config.augmentation = f.augmentation;
  const auto joints = parse_numbers(f.mirror_pairs, "--mirror-pairs");
  if (joints.size() % 2 != 0) {
    throw UsageError(fmt::format(
        "--mirror-pairs must name an even number of joints; there are {}",
        joints.size()));
  }
  for (std::size_t i = 0; i < joints.size(); i += 2) {
    config.augmentation.mirror_pairs.emplace_back(joints[i], joints[i + 1]);
  }
  return config;
}

std::map<std::string, std::string> settings_of(const TrainVideoFlags& f,
                                               const tasks::VideoConfig& config,
                                               const VideoData& training,
                                               const VideoData& held_out) {
  std::map<std::string, std::string> settings;
  const auto json = Json::parse(tasks::config_to_json(config));
  add_settings(json.at("encoder").dump(), settings);
  settings["--frames"] = fmt::format("{}", f.frames);
  settings["--patch"] = fmt::format("{}", f.patch);
  settings["--resample"] = f.resample ? "yes" : "no";
  settings["--steps"] = f.steps;
  settings["--window"] = fmt::format("{}", f.window);
  settings["--smoothing"] = fmt::format("{}", f.smoothing);
  const tasks::ClipAugmentation& a = f.augmentation;
  settings["--crop"] = fmt::format("{}", a.crop);
  settings["--mirror"] = a.mirror ? "yes" : "no";
  settings["--mirror-pairs"] = f.mirror_pairs;
  settings["--rotate"] = fmt::format("{}", a.rotate);
  settings["--stretch"] = fmt::format("{}", a.stretch);
  settings["--noise"] = fmt::format("{}", a.noise);
  settings["--hide"] = fmt::format("{}", a.hide);
  settings["training data"] = tasks::summary_of(training);
  settings["held-out data"] = tasks::summary_of(held_out);
  return settings;
}

// The held-out clips through the model as it was saved.
std::string held_out_lines(const std::filesystem::path& folder,
                           const VideoData& data, const LabelledTexts& list,
                           int threads) {
  if (data.size() == 0) return "";
  const auto model = tasks::VideoClassifier::load(folder);
  std::vector<std::string> said;
  for (const auto& found : model.classify(data.clips, 1, {.count = threads})) {
    said.push_back(
        model.config().labels[static_cast<std::size_t>(found.front().label)]);
  }
  const auto score = tasks::score_labels(list.labels, said);
  return fmt::format(
      "Held out ({} clips): accuracy {:.2f} %, macro F1 {:.2f} %\n",
      score.examples, 100 * score.accuracy, 100 * score.macro_f1);
}

void run(const TrainVideoFlags& f, Ranks& ranks) {
  check(f.learning);
  const TrainingFolder folder(f.learning, kCommand, ranks);
  const LabelledData lists =
      read_labelled_data({kCommand, "clips", f.clips, f.valid, f.valid_share,
                          f.learning.seed, "clip", "label"});
  tasks::VideoConfig config = config_of(f, lists.labels);
  const VideoData training =
      load_data(f, f.clips, lists.training, config.labels);
  const VideoData held_out = load_data(f, f.valid.empty() ? f.clips : f.valid,
                                       lists.held_out, config.labels);
  config.format =
      tasks::format_of(training.clips.front(), lists.training.texts.front());
  for (const auto& [data, list] : {std::pair(&training, &lists.training),
                                   std::pair(&held_out, &lists.held_out)}) {
    for (std::size_t i = 0; i < list->texts.size(); ++i) {
      tasks::check_format(config, data->clips[i], list->texts[i]);
    }
  }
  check_kind(f, lists, config.format);
  config.set_sizes();
  tasks::ExampleTask task =
      tasks::make_video_task(config, training, held_out, f.learning.seed,
                             {.count = f.learning.threads});
  std::fprintf(stderr,
               "%lld clips to learn from, %lld held out, frames of %s, %zu "
               "labels, %lld parameters\n",
               static_cast<long long>(training.size()),
               static_cast<long long>(held_out.size()),
               tasks::to_string(config.format).c_str(), config.labels.size(),
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create();
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings_of(f, config, training, held_out), "examples",
                 [&](const StateDict& weights) {
                   tasks::save_video_classifier(
                       folder.path(), config,
                       tasks::finished_weights(config, training, weights),
                       f.learning.stored());
                 });
  if (!ranks.first()) return;
  const nn::EncoderConfig& e = config.encoder;
  folder.finish(
      outcome,
      held_out_lines(folder.path(), held_out, lists.held_out,
                     f.learning.threads),
      {"What clips show",
       fmt::format("- Labels: {}\n- Data: {}; {} clips, frames of {}, at most "
                   "{}\n- Model: {}, pooling {}; {} parameters; dropout {}\n",
                   fmt::join(config.labels, ", "),
                   std::filesystem::path(f.clips).filename().string(),
                   training.size(), tasks::to_string(config.format),
                   config.frames, size_text(e), f.encoder.pooling,
                   parameter_count(outcome.result.weights), e.dropout),
       "clip", "regard video --model FOLDER clip.npy",
       "It knows nothing but its data, and is sure of itself even where it "
       "is wrong."});
}

}  // namespace

Command add_train_video(App& train, Ranks& ranks) {
  const auto flags = std::make_shared<TrainVideoFlags>();
  // What a few hundred clips need.
  flags->encoder.pooling = "attention";
  LearningFlags& learning = flags->learning;
  learning.updates = 1500;
  learning.schedule = "cosine";
  learning.rate = 0.001;
  learning.warmup = 100;
  learning.average = 1;
  learning.batch_tokens = 1024;
  App* app = train.add_subcommand(
      "video",
      "A clip classifier, from videos or other clips and their labels");
  app->footer(kFooter);
  add_data(*app, *flags);
  add_model(*app, *flags);
  add_augmentation(*app, *flags);
  add_learning_flags(*app, learning);
  return {app, [flags, &ranks] { run(*flags, ranks); }};
}

}  // namespace regard::cli
