// SPDX-License-Identifier: Apache-2.0
// regard train caption: a captioner, from pictures and what was said of them.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/encoder_flags.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/train.h"
#include "cli/training_folder.h"
#include "cli/usage_error.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/captioner.h"

namespace regard::cli {
namespace fs = std::filesystem;

namespace {

constexpr const char* kCommand = "train caption";

struct TrainCaptionFlags {
  std::string pictures, captions, valid;
  double valid_share = 0.05;
  std::string features = "patches";
  std::string network;
  std::int64_t side = 224;
  std::int64_t patch = 16;
  TextFlags text;
  EncoderFlags layers;
  std::int64_t decoder_layers = 2;
  double smoothing = 0.0;
  LearningFlags learning;
};

constexpr const char* kFooter =
    R"(A file of captions is a table with a column `picture`, the name of a file in
--pictures (JPEG, PNG or WebP), and a column `caption`, in UTF-8; a picture may
have several captions, each on a line of its own. The formats are
.tsv (tabs), .csv (commas and quotes) and .jsonl. An invalid line and a picture
that cannot be read are errors that name it. Without a validation file, a share
of the pictures is held out, chosen by --seed and their names.

The middle square of each picture is resized to --side. The encoder reads:
  --features patches       the colours of --patch x --patch pixels
  --features mobilenet-v2  the last convolution of MobileNetV2 with the weights
                           in --network: those of torchvision, as safetensors.
                           They are not trained. The features of each picture
                           are computed once and stored next to the captions, in
                           NAME.features.safetensors.

The folder becomes a model for `regard caption`: config.json, model.safetensors,
the tokenizer, features.safetensors for MobileNetV2, and a model card,
README.md. Its folder `training` holds what --resume needs. Ctrl-C saves and
ends; once there is a milestone, it also writes the model so far. The same
command gives the same bits, for any number of threads, also if it was stopped
and resumed.

Examples:
  regard sample caption --out shapes
  regard train caption --pictures shapes/pictures --captions shapes/train.tsv \
      --valid shapes/valid.tsv --side 48 --patch 12 --layers 2 --out shapes-model
  regard train caption --pictures photos --captions train.tsv \
      --features mobilenet-v2 --network mobilenet_v2.safetensors --out photos-model)";

void add_data(App& app, TrainCaptionFlags& f) {
  const char* group = "Data";
  app.add_option("--pictures", f.pictures, "The folder of the pictures")
      ->type_name("FOLDER")
      ->required()
      ->group(group);
  app.add_option("--captions", f.captions, "Pictures and their captions")
      ->type_name("FILE")
      ->required()
      ->group(group);
  add_held_out_flags(app, f.valid, f.valid_share);
  add_folder_flags(app, f.learning);
}

void add_pictures(App& app, TrainCaptionFlags& f) {
  const char* group = "Pictures";
  app.add_option("--features", f.features, "Input of the encoder")
      ->check(member_of({"patches", "mobilenet-v2"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--network", f.network,
                 "Weights of MobileNetV2, for --features mobilenet-v2")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--side", f.side, "Side of the square input, in pixels")
      ->check(whole_between(1, 4096))
      ->capture_default_str()
      ->group(group);
  app.add_option("--patch", f.patch,
                 "Side of a patch, in pixels; divides --side")
      ->check(whole_between(1, 4096))
      ->capture_default_str()
      ->group(group);
}

void check_flags(const TrainCaptionFlags& f) {
  check(f.learning);
  check(f.text);
  encoder_config(f.layers, 1);
  const bool patches = f.features == "patches";
  if (patches != f.network.empty()) {
    throw UsageError(
        "--network goes with --features mobilenet-v2, which needs it");
  }
  const std::int64_t step = patches ? f.patch : pictures::MobileNetV2::kStride;
  if (f.side % step != 0) {
    throw UsageError(fmt::format("--side must be a multiple of {}; it is {}",
                                 patches ? "--patch" : std::to_string(step),
                                 f.side));
  }
  if (!patches && f.patch != TrainCaptionFlags().patch) {
    throw UsageError("--patch goes with --features patches");
  }
  if (f.layers.positions == "rotary") {
    throw UsageError(
        "--positions must be sinusoidal, learned or none: the places of a "
        "picture are learnt");
  }
}

tasks::FeatureReader reader_of(const TrainCaptionFlags& f) {
  tasks::PictureFeatures features;
  features.side = f.side;
  features.patch = f.patch;
  if (f.features == "patches") return tasks::FeatureReader(features);
  features.kind = tasks::PictureFeatures::Kind::kMobileNetV2;
  return tasks::FeatureReader(
      features,
      pictures::MobileNetV2(SafetensorsFile::open(f.network).state_dict()));
}

struct Data {
  tasks::CaptionTable training, held_out;
};

tasks::CaptionTable chosen(const tasks::CaptionTable& all,
                           const std::vector<std::int64_t>& numbers) {
  tasks::CaptionTable some;
  for (const std::int64_t number : numbers) {
    const auto i = static_cast<std::size_t>(number);
    some.pictures.push_back(all.pictures[i]);
    some.captions.push_back(all.captions[i]);
  }
  return some;
}

Data load_data(const TrainCaptionFlags& f) {
  Data data;
  data.training = tasks::read_captions(f.captions);
  if (!f.valid.empty()) {
    data.held_out = tasks::read_captions(f.valid);
  } else {
    const tasks::Split split = tasks::split_examples(
        data.training.pictures, f.valid_share, f.learning.seed);
    data.held_out = chosen(data.training, split.held_out);
    data.training = chosen(data.training, split.training);
  }
  require(!data.training.pictures.empty(), kCommand,
          "there are no pictures to learn from in '", f.captions, "'");
  return data;
}

std::vector<std::string> texts_of(const tasks::CaptionTable& table) {
  std::vector<std::string> texts;
  for (const auto& captions : table.captions) {
    texts.insert(texts.end(), captions.begin(), captions.end());
  }
  return texts;
}

// The features that take long are kept beside the captions that name the
// pictures; where a share is held out, there are two files.
tasks::FeatureSet features_of(const TrainCaptionFlags& f,
                              const tasks::FeatureReader& reader,
                              const tasks::CaptionTable& table,
                              const char* what, const std::string& captions) {
  fs::path cache;
  if (reader.network() != nullptr) {
    cache = captions;
    cache.replace_extension((f.valid.empty() ? std::string(".") + what : "") +
                            ".features.safetensors");
  }
  Progress progress(fmt::format("looking at pictures ({})", what), "pictures");
  return tasks::FeatureSet::make(
      reader, f.pictures, table.pictures, cache,
      [&](std::int64_t done, std::int64_t all) { progress.update(done, all); },
      {.count = f.learning.threads});
}

std::map<std::string, std::string> settings_of(
    const TrainCaptionFlags& f, const tasks::CaptionerConfig& config,
    const tasks::CaptionData& training, const tasks::CaptionData& held_out) {
  std::map<std::string, std::string> settings;
  add_settings(f.text, settings);
  const auto json = Json::parse(tasks::config_to_json(config));
  add_settings(json.at("layers").dump(), settings);
  settings["--decoder-layers"] = std::to_string(config.decoder_layers);
  settings["--smoothing"] = fmt::format("{}", f.smoothing);
  settings["--features"] = json.at("pictures").dump();
  const auto add = [&](const std::string& what,
                       const tasks::CaptionData& data) {
    settings[what + " pictures"] = data.features.made_of();
    std::vector<std::vector<std::int32_t>> all;
    for (const auto& captions : data.captions) {
      all.insert(all.end(), captions.begin(), captions.end());
    }
    settings[what + " captions"] = tasks::summary_of(all, {});
  };
  add("training", training);
  add("held-out", held_out);
  return settings;
}

// The held-out pictures through the model as it was saved.
std::string held_out_line(const TrainCaptionFlags& f, const fs::path& folder,
                          const tasks::CaptionTable& held_out) {
  if (held_out.pictures.empty()) return "";
  const tasks::Captioner model = tasks::Captioner::load(folder);
  std::vector<fs::path> files;
  for (const std::string& name : held_out.pictures) {
    files.push_back(fs::path(f.pictures) / name);
  }
  std::vector<std::string> said;
  for (tasks::Caption& caption :
       model.caption(files, {.threads = {.count = f.learning.threads}})) {
    said.push_back(std::move(caption.text));
  }
  const auto bleu = tasks::score_captions(said, held_out).up_to_order;
  return fmt::format(
      "Held out ({} pictures): BLEU-1 {:.1f}, BLEU-2 {:.1f}, BLEU-3 {:.1f}, "
      "BLEU-4 {:.1f}\n",
      files.size(), bleu[0], bleu[1], bleu[2], bleu[3]);
}

void run(const TrainCaptionFlags& f, Ranks& ranks) {
  check_flags(f);
  const TrainingFolder folder(f.learning, kCommand, ranks);
  const Data data = load_data(f);
  const tasks::FeatureReader reader = reader_of(f);
  tasks::CaptionerConfig config;
  config.pictures = reader.features();
  config.decoder_layers = f.decoder_layers;
  config.label_smoothing = static_cast<float>(f.smoothing);
  const auto tokenizer = folder.goes_on()
                             ? text::load_tokenizer(folder.path())
                             : make_tokenizer(f.text, texts_of(data.training));
  config.layers = encoder_config(f.layers, tokenizer->size());
  const auto encoded = [&](const tasks::CaptionTable& table, const char* what,
                           const std::string& file) {
    return tasks::encode_captions(table, *tokenizer, config,
                                  features_of(f, reader, table, what, file));
  };
  const tasks::CaptionData training =
      encoded(data.training, "training", f.captions);
  const tasks::CaptionData held_out = encoded(
      data.held_out, "held-out", f.valid.empty() ? f.captions : f.valid);
  tasks::ExampleTask task =
      tasks::make_caption_task(config, training, held_out, f.learning.seed,
                               {.count = f.learning.threads});
  const std::size_t captions = texts_of(data.training).size();
  std::fprintf(stderr,
               "%lld pictures with %zu captions, %lld held out; %lld pieces, "
               "%lld parameters\n",
               static_cast<long long>(training.size()), captions,
               static_cast<long long>(held_out.size()),
               static_cast<long long>(tokenizer->size()),
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create(*tokenizer);
  const TrainingFolder::Outcome outcome = folder.run(
      task, settings_of(f, config, training, held_out), "pieces",
      [&](const StateDict& weights) {
        tasks::save_captioner(folder.path(), config, reader.network(),
                              *tokenizer, weights, f.learning.stored());
      });
  if (!ranks.first()) return;
  const nn::EncoderConfig& e = config.layers;
  folder.finish(
      outcome, held_out_line(f, folder.path(), data.held_out),
      {"Captioner",
       fmt::format("- Data: {}; {} pictures with {} captions\n"
                   "- Pictures: {} x {} pixels as {} x {} places ({})\n"
                   "- Model: {}; {} layers of the decoder; {} pieces; {} "
                   "parameters; dropout {}\n",
                   fs::path(f.captions).filename().string(), training.size(),
                   captions, f.side, f.side, config.pictures.grid(),
                   config.pictures.grid(), f.features, size_text(e),
                   config.decoder_layers, e.vocab,
                   parameter_count(outcome.result.weights), e.dropout),
       "piece", "regard caption --model FOLDER photo.jpg",
       "It knows nothing but its data, and names what it has seen there even "
       "where something else is in the picture."});
}

}  // namespace

Command add_train_caption(App& train, Ranks& ranks) {
  const auto flags = std::make_shared<TrainCaptionFlags>();
  flags->layers.layers = 1;
  flags->layers.positions = "sinusoidal";
  flags->layers.max_length = 40;
  LearningFlags& learning = flags->learning;
  learning.updates = 2000;
  learning.schedule = "cosine";
  learning.rate = 0.002;
  learning.warmup = 200;
  learning.average = 1;
  learning.batch_tokens = 2048;
  App* app = train.add_subcommand(
      "caption", "A captioner, from pictures and their captions");
  app->footer(kFooter);
  add_data(*app, *flags);
  add_pictures(*app, *flags);
  add_text_flags(*app, flags->text);
  add_layer_flags(*app, flags->layers);
  app->add_option("--decoder-layers", flags->decoder_layers,
                  "Layers of the decoder")
      ->check(whole_between(1, 1024))
      ->capture_default_str()
      ->group("Model");
  app->add_option("--max-length", flags->layers.max_length,
                  "Maximum number of tokens of a caption")
      ->check(whole_between(2, 10000))
      ->capture_default_str()
      ->group("Model");
  app->add_option("--smoothing", flags->smoothing, "Label smoothing")
      ->check(real_between(0, 0.95))
      ->capture_default_str()
      ->group("Model");
  add_learning_flags(*app, learning);
  return {app, [flags, &ranks] { run(*flags, ranks); }};
}

}  // namespace regard::cli
