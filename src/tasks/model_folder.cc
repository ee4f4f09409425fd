// SPDX-License-Identifier: Apache-2.0
#include "tasks/model_folder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "io/atomic_file.h"
#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/safetensors.h"
#include "tasks/rounded_state.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace fs = std::filesystem;
using text::Field;

namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";

// In the order of the enumerators.
constexpr std::array kActivations = {"none", "relu",   "gelu", "gelu_tanh",
                                     "silu", "swiglu", "geglu"};
constexpr std::array kNorms = {"layer_norm", "rms_norm"};
constexpr std::array kPositions = {"sinusoidal", "learned", "rotary", "none"};
constexpr std::array kPoolings = {"first", "mean", "attention", "last"};

template <typename Enum, std::size_t N>
Enum named(const Field& field, const std::array<const char*, N>& names) {
  for (std::size_t i = 0; i < N; ++i) {
    if (field.text() == names[i]) return static_cast<Enum>(i);
  }
  std::string known;
  for (const char* name : names)
    known += (known.empty() ? "" : ", ") + std::string(name);
  field.fail("must be one of ", known, "; it is ", io::in_quotes(field.text()));
}

std::int64_t size_from(const Field& field,
                       std::int64_t most = std::int64_t{1} << 24) {
  const std::int64_t size = field.count();
  if (size < 1 || size > most) {
    field.fail("must be from 1 to ", most, "; it is ", size);
  }
  return size;
}

float rate_from(const Field& field) {
  const double rate = field.real();
  if (!(rate >= 0 && rate < 1)) field.fail("must be in [0, 1); it is ", rate);
  return static_cast<float>(rate);
}

Tensor to_float32(Tensor tensor, const std::string& name, const char* where) {
  if (tensor.dtype() == DType::kFloat32) return tensor;
  if (tensor.dtype() != DType::kFloat16) {
    throw_parse_error(where, "weights must be float32 or float16; ", name,
                      " is ", to_string(tensor.dtype()));
  }
  Tensor wide(tensor.shape());
  const auto from = tensor.values<Float16>();
  std::transform(from.begin(), from.end(), wide.values<float>().begin(),
                 [](Float16 value) { return static_cast<float>(value); });
  return wide;
}

Tensor to_float16(const Tensor& tensor) {
  Tensor narrow(DType::kFloat16, tensor.shape());
  const auto from = tensor.values<float>();
  std::transform(from.begin(), from.end(), narrow.values<Float16>().begin(),
                 [](float value) { return Float16(value); });
  return narrow;
}

// What a folder that is no model is, or may have been meant to be.
void check_is_model(const fs::path& folder, const char* where) {
  std::error_code error;
  std::string name = "'";  // g++ 12 takes a sum of texts for an overlap
  name.append(folder.string()).append("'");
  if (!fs::exists(folder, error)) {
    throw_io_error(where, name, " is not there; a model is a folder");
  }
  if (!fs::is_directory(folder, error)) {
    throw_parse_error(where, name,
                      " is a file and no model: a model is a folder with ",
                      kConfigFile, ", ", kWeightsFile, " and a tokenizer");
  }
  if (fs::exists(folder / kConfigFile, error)) return;
  if (fs::exists(folder / "training", error)) {
    throw_parse_error(where, name,
                      " holds an unfinished training and no model yet; the "
                      "command that began it goes on with --resume");
  }
  throw_parse_error(where, name, " is no model: it has no ", kConfigFile);
}

}  // namespace

ops::WeightStorage ModelFolder::weights_as(ops::WeightStorage asked,
                                           const char* where) const {
  return weights_for(asked, stored, where);
}

ModelFolder load_model_without_tokenizer(const fs::path& folder,
                                         const char* kind, const char* where) {
  check_is_model(folder, where);
  ModelFolder model;
  const fs::path file = folder / kConfigFile;
  model.config_name = std::string(where) + ": '" + file.string() + "'";
  model.config =
      text::parse_json(io::read_regular(file, where), model.config_name);
  const std::string found = model.field()["kind"].text();
  if (found != kind) {
    throw_parse_error(where, "'", file.string(), "' must be of the kind '",
                      kind, "'; it is ", io::in_quotes(found));
  }
  const SafetensorsFile weights = SafetensorsFile::open(folder / kWeightsFile);
  model.stored = codes_of(weights);
  StateDict stored = weights.state_dict();
  widen_codes(stored, where);
  for (auto& [name, tensor] : stored) {
    model.weights.emplace(name, to_float32(std::move(tensor), name, where));
  }
  return model;
}

ModelFolder load_model_folder(const fs::path& folder, const char* kind,
                              const char* where) {
  ModelFolder model = load_model_without_tokenizer(folder, kind, where);
  model.tokenizer = text::load_tokenizer(folder);
  return model;
}

void save_model_folder(const fs::path& folder, const Json& config,
                       const text::Tokenizer& tokenizer,
                       const StateDict& weights, DType stored) {
  tokenizer.save(folder);
  save_model_folder(folder, config, weights, stored);
}

void save_model_folder(const fs::path& folder, const Json& config,
                       const StateDict& weights, DType stored) {
  constexpr const char* kWhere = "save_model_folder";
  require(stored == DType::kFloat32 || stored == DType::kFloat16, kWhere,
          "weights are stored as float32 or float16; got ", to_string(stored));
  io::AtomicFile file(folder / kConfigFile, kWhere);
  file.write(config.dump(2) + "\n");
  file.commit();
  if (stored == DType::kFloat32) {
    return save_safetensors(folder / kWeightsFile, weights);
  }
  StateDict narrow;
  for (const auto& [name, tensor] : weights) {
    narrow.emplace(name, to_float16(tensor));
  }
  save_safetensors(folder / kWeightsFile, narrow);
}

Json to_json(const nn::EncoderConfig& c) {
  const auto name = [](const auto& names, auto value) {
    return names[static_cast<std::size_t>(value)];
  };
  Json out = {{"vocab", c.vocab},
              {"model_dim", c.model_dim},
              {"heads", c.heads},
              {"layers", c.layers},
              {"feed_forward_dim", c.feed_forward_dim},
              {"activation", name(kActivations, c.activation)},
              {"norm", name(kNorms, c.norm)},
              {"norm_epsilon", c.norm_epsilon},
              {"norm_first", c.norm_first},
              {"shared_layers", c.shared_layers},
              {"positions", name(kPositions, c.positions)},
              {"max_length", c.max_length},
              {"pooling", name(kPoolings, c.pooling)},
              {"dropout", c.dropout},
              {"attention_dropout", c.attention_dropout},
              {"activation_dropout", c.activation_dropout}};
  // Pretrained encoders alone have these: the files and checkpoints of others
  // stay as they were.
  if (c.embedding_scale != 0) out["embedding_scale"] = c.embedding_scale;
  if (c.token_type) out["token_type"] = true;
  if (c.embedding_norm) out["embedding_norm"] = true;
  return out;
}

nn::EncoderConfig encoder_from(const Field& f) {
  nn::EncoderConfig c;
  c.vocab = size_from(f["vocab"]);
  c.model_dim = size_from(f["model_dim"]);
  c.heads = size_from(f["heads"]);
  c.layers = size_from(f["layers"], kMostOwnLayers);
  c.feed_forward_dim = size_from(f["feed_forward_dim"]);
  c.activation = named<nn::Activation>(f["activation"], kActivations);
  c.norm = named<nn::Norm>(f["norm"], kNorms);
  c.norm_epsilon = rate_from(f["norm_epsilon"]);
  c.norm_first = f["norm_first"].flag();
  c.shared_layers = f["shared_layers"].flag();
  c.positions = named<nn::Positions>(f["positions"], kPositions);
  c.max_length = size_from(f["max_length"], 1 << 17);
  c.pooling = named<nn::Pooling>(f["pooling"], kPoolings);
  c.dropout = rate_from(f["dropout"]);
  c.attention_dropout = rate_from(f["attention_dropout"]);
  c.activation_dropout = rate_from(f["activation_dropout"]);
  if (f.has("embedding_scale")) {
    c.embedding_scale = static_cast<float>(f["embedding_scale"].real());
  }
  c.token_type = f.flag("token_type", false);
  c.embedding_norm = f.flag("embedding_norm", false);
  return c;
}

}  // namespace regard::tasks
