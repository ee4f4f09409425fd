// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/captioner.h"

#include <algorithm>
#include <utility>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/nn/decoding.h"
#include "tasks/beam_search.h"
#include "tasks/captioner_parts.h"
#include "tasks/model_folder.h"

namespace regard::tasks {
namespace fs = std::filesystem;
namespace {

constexpr const char* kKind = "regard captioner";
constexpr const char* kLoad = "Captioner::load";
constexpr const char* kFeaturesFile = "features.safetensors";
constexpr const char* kPatches = "patches";
constexpr const char* kMobileNet = "mobilenet-v2";

Json json_of(const CaptionerConfig& c) {
  Json pictures = {{"features", kMobileNet}, {"side", c.pictures.side}};
  if (c.pictures.kind == PictureFeatures::Kind::kPatches) {
    pictures["features"] = kPatches;
    pictures["patch"] = c.pictures.patch;
  }
  return {{"kind", kKind},
          {"pictures", std::move(pictures)},
          {"layers", to_json(c.layers)},
          {"decoder_layers", c.decoder_layers},
          {"label_smoothing", c.label_smoothing}};
}

std::int64_t number_in(const text::Field& field, std::int64_t most) {
  const std::int64_t number = field.count();
  if (number < 1 || number > most) {
    field.fail("must be from 1 to ", most, "; it is ", number);
  }
  return number;
}

CaptionerConfig config_from(const text::Field& f) {
  constexpr std::int64_t kMostSide = 4096;
  CaptionerConfig c;
  const text::Field pictures = f["pictures"];
  const std::string kind = pictures["features"].text();
  c.pictures.side = number_in(pictures["side"], kMostSide);
  if (kind == kPatches) {
    c.pictures.patch = number_in(pictures["patch"], kMostSide);
  } else if (kind == kMobileNet) {
    c.pictures.kind = PictureFeatures::Kind::kMobileNetV2;
  } else {
    pictures["features"].fail("must be patches or mobilenet-v2; it is '", kind,
                              "'");
  }
  c.layers = encoder_from(f["layers"]);
  c.decoder_layers = number_in(f["decoder_layers"], kMostOwnLayers);
  const double smoothing = f["label_smoothing"].real();
  if (!(smoothing >= 0 && smoothing < 1)) {
    f["label_smoothing"].fail("must be in [0, 1); it is ", smoothing);
  }
  c.label_smoothing = static_cast<float>(smoothing);
  return c;
}

// The parameters of one side of the model leave the others.
StateDict taken(StateDict& weights, const nn::ParameterSpecs& specs) {
  StateDict some;
  for (const auto& [name, spec] : specs) some.insert(weights.extract(name));
  return some;
}

void check(const CaptionOptions& o, const CaptionerConfig& config) {
  constexpr const char* kWhere = "Captioner::caption";
  constexpr std::int64_t kWidest = 1000;
  require(o.beam >= 1 && o.beam <= kWidest, kWhere,
          "the beam must be from 1 to ", kWidest, "; got ", o.beam);
  require(is_length_penalty(o.length_penalty), kWhere,
          "length_penalty must be from -10 to 10; got ", o.length_penalty);
  require(o.max_length >= 0 && o.max_length <= config.layers.max_length, kWhere,
          "max_length must be at most ", config.layers.max_length,
          ", as in training; got ", o.max_length);
}

}  // namespace

struct Captioner::Parts {
  CaptionerConfig config;
  FeatureReader reader;
  std::unique_ptr<text::Tokenizer> tokenizer;
  nn::PackedParameters embedding;
  nn::TransformerDecoder decoder;

  // What the encoder reads of some pictures: a row for each place, on `pass`.
  nn::Variable rows(nn::Pass& pass, std::span<const fs::path> files,
                    Threads threads) const {
    const Tensor features = reader.read(files, threads);
    return PictureEmbedding{config}(
        pass, pass.tape().constant(
                  TensorView<const float, 2>(features.view<float, 2>())));
  }

  // Where the rows of each of so many pictures begin, and the last end.
  std::vector<std::int64_t> offsets(std::size_t pictures) const {
    std::vector<std::int64_t> result;
    for (std::size_t i = 0; i <= pictures; ++i) {
      result.push_back(static_cast<std::int64_t>(i) * config.pictures.places());
    }
    return result;
  }

  // The best caption of each source.
  std::vector<Hypothesis> search(const nn::SourceRows& sources,
                                 const CaptionOptions& options,
                                 Threads threads) const {
    nn::DecoderState state = decoder.start(sources, 1, threads);
    SearchOptions how;
    how.vocab = config.layers.vocab;
    how.beam = options.beam;
    how.length_penalty = options.length_penalty;
    how.limit = config.layers.max_length;
    how.max_length = options.max_length > 0 ? options.max_length : how.limit;
    how.never.push_back(text::kBegin);
    if (options.align) how.align_layer = config.decoder_layers - 1;
    std::vector<Hypothesis> best;
    for (auto& found : BeamSearch<nn::DecoderState>(state, how)()) {
      best.push_back(std::move(found.front()));
    }
    return best;
  }

  std::vector<std::string> pieces(
      const std::vector<std::int32_t>& tokens) const {
    std::vector<std::string> result;
    for (const std::int32_t token : tokens) {
      result.push_back(tokenizer->piece(token));
    }
    return result;
  }
};

Captioner::Captioner(const CaptionerConfig& config,
                     std::optional<pictures::MobileNetV2> network,
                     std::unique_ptr<text::Tokenizer> tokenizer,
                     StateDict weights, ops::WeightStorage storage) {
  constexpr const char* kWhere = "Captioner";
  require(tokenizer != nullptr && tokenizer->size() == config.layers.vocab,
          kWhere, "the model has ", config.layers.vocab,
          " pieces, the tokenizer ", tokenizer ? tokenizer->size() : 0);
  FeatureReader reader(config.pictures, std::move(network));
  nn::check_parameters(captioner_specs(config), weights, kWhere);
  nn::ParameterSpecs before;
  PictureEmbedding{config}.declare(before);
  nn::PackedParameters embedding(before, taken(weights, before), storage,
                                 kWhere);
  parts_.reset(new Parts{
      config, std::move(reader), std::move(tokenizer), std::move(embedding),
      nn::TransformerDecoder(transformer_of(config), weights, storage)});
}

Captioner::~Captioner() = default;
Captioner::Captioner(Captioner&&) noexcept = default;
Captioner& Captioner::operator=(Captioner&&) noexcept = default;

const CaptionerConfig& Captioner::config() const { return parts_->config; }
std::size_t Captioner::weight_bytes() const {
  return parts_->embedding.bytes() + parts_->decoder.weight_bytes();
}

Captioner Captioner::load(const fs::path& folder, ops::WeightStorage weights) {
  ModelFolder model = load_model_folder(folder, kKind, kLoad);
  weights = model.weights_as(weights, kLoad);
  const CaptionerConfig config = config_from(model.field());
  std::optional<pictures::MobileNetV2> network;
  try {
    if (config.pictures.kind == PictureFeatures::Kind::kMobileNetV2) {
      network.emplace(
          SafetensorsFile::open(folder / kFeaturesFile).state_dict());
    }
    return {config, std::move(network), std::move(model.tokenizer),
            std::move(model.weights), weights};
  } catch (const InvalidArgument& refused) {
    throw_parse_error(kLoad, "the files of '", folder.string(),
                      "' do not fit each other: ", refused.what());
  }
}

std::vector<Caption> Captioner::caption(std::span<const fs::path> files,
                                        const CaptionOptions& options) const {
  check(options, parts_->config);
  std::vector<Caption> captions(files.size());
  const auto run = [&](std::size_t begin, std::size_t count, Threads threads) {
    autograd::Tape tape(autograd::Record::kNo, threads);
    nn::Pass pass(tape, parts_->embedding);
    const nn::Variable rows =
        parts_->rows(pass, files.subspan(begin, count), threads);
    const std::vector<std::int64_t> offsets = parts_->offsets(count);
    const std::vector<Hypothesis> found =
        parts_->search({rows.value(), offsets}, options, threads);
    for (std::size_t i = 0; i < count; ++i) {
      const Hypothesis& best = found[i];
      Caption& caption = captions[begin + i];
      caption.text = parts_->tokenizer->decode(best.tokens);
      caption.score = best.score;
      if (!options.align) continue;
      caption.pieces = parts_->pieces(best.tokens);
      caption.alignment.assign(
          best.alignment.begin(),
          best.alignment.begin() + std::ssize(best.tokens));
    }
  };
  // Batches have nothing to do with each other, so that each thread takes some.
  constexpr std::size_t kBatch = 16;
  if (files.size() <= kBatch) {
    if (!files.empty()) run(0, files.size(), options.threads);
    return captions;
  }
  const auto batches =
      static_cast<std::int64_t>((files.size() + kBatch - 1) / kBatch);
  parallel_for(options.threads, batches, [&](std::int64_t i) {
    const std::size_t begin = static_cast<std::size_t>(i) * kBatch;
    run(begin, std::min(kBatch, files.size() - begin), {.count = 1});
  });
  return captions;
}

CaptionTrace Captioner::trace(const fs::path& file,
                              const CaptionOptions& options) const {
  check(options, parts_->config);
  autograd::Tape tape(autograd::Record::kNo, options.threads);
  nn::Pass pass(tape, parts_->embedding);
  const nn::Variable rows = parts_->rows(pass, {&file, 1}, options.threads);
  const std::vector<std::int64_t> offsets = parts_->offsets(1);
  const nn::SourceRows source{rows.value(), offsets};
  const Hypothesis best =
      parts_->search(source, options, options.threads).front();
  // Each step read what the one before it wrote.
  std::vector<std::int32_t> said = best.tokens;
  if (best.ended) said.push_back(text::kEnd);
  std::vector<std::int32_t> read = said;
  read.insert(read.begin(), text::kBegin);
  read.pop_back();
  return {parts_->tokenizer->decode(best.tokens), parts_->pieces(said),
          parts_->pieces(read),
          parts_->decoder.trace(source, read, options.threads)};
}

BleuScore score_captions(std::span<const std::string> captions,
                         const CaptionTable& truth) {
  return bleu(captions, truth.captions, {.lowercase = true});
}

void save_captioner(const fs::path& folder, const CaptionerConfig& config,
                    const pictures::MobileNetV2* network,
                    const text::Tokenizer& tokenizer, const StateDict& weights,
                    DType stored) {
  if (network != nullptr) {
    save_safetensors(folder / kFeaturesFile, network->weights());
  }
  save_model_folder(folder, json_of(config), tokenizer, weights, stored);
}

std::string config_to_json(const CaptionerConfig& config) {
  return json_of(config).dump(2) + "\n";
}

}  // namespace regard::tasks
