// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/translator.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"
#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/safetensors.h"
#include "regard/nn/decoding.h"
#include "tasks/beam_search.h"

namespace regard::tasks {
namespace fs = std::filesystem;

struct Translator::Parts {
  TranslatorConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  nn::TransformerDecoder decoder;
};

namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";

Tensor to_float32(Tensor tensor, const std::string& name) {
  if (tensor.dtype() == DType::kFloat32) return tensor;
  if (tensor.dtype() != DType::kFloat16) {
    throw_parse_error("Translator::load",
                      "weights must be float32 or float16; ", name, " is ",
                      to_string(tensor.dtype()));
  }
  Tensor wide(tensor.shape());
  const auto from = tensor.values<Float16>();
  const auto to = wide.values<float>();
  std::transform(from.begin(), from.end(), to.begin(),
                 [](Float16 value) { return static_cast<float>(value); });
  return wide;
}

Tensor to_float16(const Tensor& tensor) {
  Tensor narrow(DType::kFloat16, tensor.shape());
  const auto from = tensor.values<float>();
  const auto to = narrow.values<Float16>();
  std::transform(from.begin(), from.end(), to.begin(),
                 [](float value) { return Float16(value); });
  return narrow;
}

// What a folder that is no model is, or may have been meant to be.
void check_is_model(const fs::path& folder, const fs::path& config) {
  constexpr const char* kWhere = "Translator::load";
  std::error_code error;
  std::string name = "'";
  name += folder.string();
  name += "'";
  if (!fs::exists(folder, error)) {
    throw_io_error(kWhere, name, " is not there; a model is a folder");
  }
  if (!fs::is_directory(folder, error)) {
    throw_parse_error(kWhere, name,
                      " is a file and no model: a model is a folder with ",
                      kConfigFile, ", ", kWeightsFile, " and a tokenizer");
  }
  if (fs::exists(config, error)) return;
  if (fs::exists(folder / "training", error)) {
    throw_parse_error(kWhere, name,
                      " holds an unfinished training and no model yet; the "
                      "command that began it goes on with --resume");
  }
  throw_parse_error(kWhere, name, " is no model: it has no ", kConfigFile);
}

void check(const TranslateOptions& options, const Languages& languages) {
  const char* where = "Translator::translate";
  constexpr std::int64_t kWidest = 1000;
  require(options.beam >= 1 && options.beam <= kWidest, where,
          "the beam must be from 1 to ", kWidest, "; got ", options.beam);
  require(options.nbest >= 1 && options.nbest <= options.beam, where,
          "nbest must be from 1 to the beam, ", options.beam, "; got ",
          options.nbest);
  require(options.max_length >= 0 && options.batch >= 1, where,
          "max_length must not be negative and batch positive; got ",
          options.max_length, " and ", options.batch);
  if (languages.both_directions) {
    require(options.to == languages.source || options.to == languages.target,
            where, "the model translates into ", languages.source, " and ",
            languages.target, "; say which: got '", options.to, "'");
  } else {
    require(options.to.empty() || options.to == languages.target, where,
            "the model translates into ", languages.target, "; got '",
            options.to, "'");
  }
}

}  // namespace

Translator::Translator(TranslatorConfig config,
                       std::unique_ptr<text::Tokenizer> tokenizer,
                       StateDict weights) {
  // One tokenizer serves both sides.
  for (const std::int64_t vocab :
       {config.model.source_vocab, config.model.target_vocab}) {
    require(tokenizer != nullptr && tokenizer->size() == vocab, "Translator",
            "the model has ", vocab, " pieces, the tokenizer ",
            tokenizer ? tokenizer->size() : 0);
  }
  const nn::Transformer model(config.model, std::move(weights));
  parts_ = std::make_unique<Parts>(Parts{
      std::move(config), std::move(tokenizer), nn::TransformerDecoder(model)});
}

Translator::~Translator() = default;
Translator::Translator(Translator&&) noexcept = default;
Translator& Translator::operator=(Translator&&) noexcept = default;

const TranslatorConfig& Translator::config() const { return parts_->config; }
const text::Tokenizer& Translator::tokenizer() const {
  return *parts_->tokenizer;
}

Translator Translator::load(const fs::path& folder) {
  const fs::path config_path = folder / kConfigFile;
  check_is_model(folder, config_path);
  TranslatorConfig config = config_from_json(
      io::read_file(config_path, "Translator::load"), config_path.string());
  std::unique_ptr<text::Tokenizer> tokenizer = text::load_tokenizer(folder);
  const text::SpecialIds special = tokenizer->special();
  if (special.unknown != text::kUnknown || special.begin != text::kBegin ||
      special.end != text::kEnd) {
    throw_parse_error("Translator::load", "the first pieces of '",
                      folder.string(),
                      "' must be <unk>, <s>, </s>; they have the numbers ",
                      special.unknown, ", ", special.begin, ", ", special.end);
  }
  StateDict weights = SafetensorsFile::open(folder / kWeightsFile).state_dict();
  for (auto& [name, tensor] : weights) {
    tensor = to_float32(std::move(tensor), name);
  }
  try {
    return {std::move(config), std::move(tokenizer), std::move(weights)};
  } catch (const InvalidArgument& error) {
    throw_parse_error("Translator::load", "the files of '", folder.string(),
                      "' do not fit each other: ", error.what());
  }
}

namespace {

// A sentence as the encoder reads it, and its number.
struct Source {
  std::size_t number;
  std::vector<std::int32_t> pieces;
};

std::vector<Source> encode(std::span<const std::string> sentences,
                           const Translator& translator,
                           const std::string& to) {
  const text::Tokenizer& tokenizer = translator.tokenizer();
  const std::int64_t most = translator.config().model.max_length;
  std::vector<Source> sources;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    std::vector<std::int32_t> pieces = tokenizer.encode(sentences[i]);
    if (pieces.empty()) continue;
    if (translator.config().languages.both_directions) {
      pieces.insert(pieces.begin(), tokenizer.id_of(tag_of(to)));
    }
    pieces.push_back(text::kEnd);
    require(static_cast<std::int64_t>(pieces.size()) <= most,
            "Translator::translate", "a sentence may have at most ", most,
            " pieces; sentence ", i + 1, " has ", pieces.size());
    sources.push_back({i, std::move(pieces)});
  }
  // Sentences of like length in one batch end at about the same step.
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Source& a, const Source& b) {
                     return a.pieces.size() < b.pieces.size();
                   });
  return sources;
}

std::vector<std::string> written(const text::Tokenizer& tokenizer,
                                 std::span<const std::int32_t> pieces) {
  std::vector<std::string> names;
  for (const std::int32_t piece : pieces) {
    names.push_back(tokenizer.piece(piece));
  }
  return names;
}

SearchOptions search_options(const nn::TransformerConfig& model,
                             const TranslateOptions& options) {
  SearchOptions search;
  search.vocab = model.target_vocab;
  search.beam = options.beam;
  search.length_penalty = options.length_penalty;
  search.max_length = options.max_length;
  search.limit = model.max_length;
  if (options.align) {
    search.align_layer = std::max<std::int64_t>(model.decoder_layers - 2, 0);
  }
  return search;
}

}  // namespace

std::vector<std::vector<Translation>> Translator::translate(
    std::span<const std::string> sentences,
    const TranslateOptions& options) const {
  check(options, config().languages);
  const std::vector<Source> sources = encode(sentences, *this, options.to);
  const SearchOptions search = search_options(config().model, options);
  std::vector<std::vector<Translation>> results(sentences.size(),
                                                std::vector<Translation>(1));
  const auto step = static_cast<std::size_t>(options.batch);
  for (std::size_t begin = 0; begin < sources.size(); begin += step) {
    const std::size_t end = std::min(begin + step, sources.size());
    nn::PackedTokens packed;
    for (std::size_t i = begin; i < end; ++i) {
      packed.tokens.insert(packed.tokens.end(), sources[i].pieces.begin(),
                           sources[i].pieces.end());
      packed.offsets.push_back(packed.size());
    }
    nn::DecoderState state = parts_->decoder.start(packed, 1, options.threads);
    const auto found = BeamSearch<nn::DecoderState>(state, search)();
    for (std::size_t i = begin; i < end; ++i) {
      std::vector<Translation>& result = results[sources[i].number];
      result.clear();
      for (const Hypothesis& best : found[i - begin]) {
        if (static_cast<std::int64_t>(result.size()) == options.nbest) break;
        Translation translation;
        translation.text = tokenizer().decode(best.tokens);
        translation.score = best.score;
        if (options.align) {
          translation.source_pieces = written(tokenizer(), sources[i].pieces);
          translation.target_pieces = written(tokenizer(), best.tokens);
          translation.alignment = best.alignment;
          translation.alignment.resize(best.tokens.size());
        }
        result.push_back(std::move(translation));
      }
    }
  }
  return results;
}

TranslationTrace Translator::trace(const std::string& sentence,
                                   const TranslateOptions& options) const {
  check(options, config().languages);
  const std::vector<Source> sources = encode({&sentence, 1}, *this, options.to);
  require(!sources.empty(), "Translator::trace",
          "the sentence must have a word; it is blank");
  const std::vector<std::int32_t>& source = sources.front().pieces;
  nn::PackedTokens packed;
  packed.tokens = source;
  packed.offsets.push_back(packed.size());
  SearchOptions search = search_options(config().model, options);
  search.align_layer = -1;
  nn::DecoderState state = parts_->decoder.start(packed, 1, options.threads);
  const Hypothesis best =
      BeamSearch<nn::DecoderState>(state, search)().front().front();

  // Each step read what the one before it wrote.
  std::vector<std::int32_t> said = best.tokens;
  if (best.ended) said.push_back(text::kEnd);
  std::vector<std::int32_t> read = said;
  read.insert(read.begin(), text::kBegin);
  read.pop_back();
  return {tokenizer().decode(best.tokens), written(tokenizer(), source),
          written(tokenizer(), read), written(tokenizer(), said),
          parts_->decoder.trace(source, read, options.threads)};
}

void save_translator(const fs::path& folder, const TranslatorConfig& config,
                     const text::Tokenizer& tokenizer, const StateDict& weights,
                     DType stored) {
  require(stored == DType::kFloat32 || stored == DType::kFloat16,
          "save_translator", "weights are stored as float32 or float16; got ",
          to_string(stored));
  tokenizer.save(folder);
  io::AtomicFile file(folder / kConfigFile, "save_translator");
  file.write(config_to_json(config));
  file.commit();
  if (stored == DType::kFloat32) {
    save_safetensors(folder / kWeightsFile, weights);
    return;
  }
  StateDict narrow;
  for (const auto& [name, tensor] : weights) {
    narrow.emplace(name, to_float16(tensor));
  }
  save_safetensors(folder / kWeightsFile, narrow);
}

}  // namespace regard::tasks
