// SPDX-License-Identifier: Apache-2.0
#include "tasks/encoder_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"

namespace regard::tasks {
namespace {

using nn::detail::PackedLinear;
using ops::ConstRows;

// What each family calls its parts.
struct LayerNames {
  const char* query;
  const char* key;
  const char* value;
  const char* out;
  const char* attention_norm;
  const char* up;
  const char* down;
  const char* norm;
};
constexpr LayerNames kBertNames = {"attention.self.query",
                                   "attention.self.key",
                                   "attention.self.value",
                                   "attention.output.dense",
                                   "attention.output.LayerNorm",
                                   "intermediate.dense",
                                   "output.dense",
                                   "output.LayerNorm"};
constexpr LayerNames kDistilNames = {"attention.q_lin", "attention.k_lin",
                                     "attention.v_lin", "attention.out_lin",
                                     "sa_layer_norm",   "ffn.lin1",
                                     "ffn.lin2",        "output_layer_norm"};
constexpr LayerNames kMpnetNames = {"attention.attn.q",    "attention.attn.k",
                                    "attention.attn.v",    "attention.attn.o",
                                    "attention.LayerNorm", "intermediate.dense",
                                    "output.dense",        "output.LayerNorm"};
constexpr LayerNames kAlbertNames = {
    "attention.query", "attention.key",        "attention.value",
    "attention.dense", "attention.LayerNorm",  "ffn",
    "ffn_output",      "full_layer_layer_norm"};

struct FamilyNames {
  const char* prefix;  // of a model with a head on top
  const char* layer;   // before the number of a layer
  LayerNames parts;
};
const FamilyNames& names_of(EncoderFamily family) {
  static constexpr FamilyNames kBert{"bert.", "encoder.layer.", kBertNames};
  static constexpr FamilyNames kRoberta{"roberta.", "encoder.layer.",
                                        kBertNames};
  static constexpr FamilyNames kDistil{"distilbert.", "transformer.layer.",
                                       kDistilNames};
  static constexpr FamilyNames kMpnet{"mpnet.", "encoder.layer.", kMpnetNames};
  static constexpr FamilyNames kAlbert{
      "albert.", "encoder.albert_layer_groups.", kAlbertNames};
  switch (family) {
    case EncoderFamily::kRoberta:
      return kRoberta;
    case EncoderFamily::kDistilBert:
      return kDistil;
    case EncoderFamily::kMpnet:
      return kMpnet;
    case EncoderFamily::kAlbert:
      return kAlbert;
    default:
      return kBert;
  }
}

template <typename T>
void widen(std::span<const std::byte> bytes, float* to) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    to[i] = static_cast<float>(value);
  }
}

// The tensors of a file by the names that the settings promise.
class Reader {
 public:
  Reader(const SafetensorsFile& file, const std::filesystem::path& path,
         const EncoderSettings& settings, ops::WeightStorage storage)
      : file_(file),
        where_("TextEncoder::load: '" + path.string() + "'"),
        settings_(settings),
        storage_(storage),
        names_(names_of(settings.family)) {
    const std::string words = "embeddings.word_embeddings.weight";
    if (!file.contains(words) && file.contains(names_.prefix + words)) {
      prefix_ = names_.prefix;
    }
  }

  EncoderTable table(const std::string& name, std::int64_t rows,
                     std::int64_t width) const {
    return read(name, {rows, width});
  }

  std::vector<float> vector(const std::string& name, std::int64_t size) const {
    const EncoderTable values = read(name, {size});
    return {values.rows.data(), values.rows.data() + size};
  }

  PackedLinear linear(const std::string& name, std::int64_t out,
                      std::int64_t in) const {
    const EncoderTable weight = table(name + ".weight", out, in);
    return PackedLinear(weight.rows, vector(name + ".bias", out), storage_);
  }

  ops::NormWeights norm(const std::string& name, std::int64_t width) const {
    return {.epsilon = settings_.norm_epsilon,
            .weight = vector(norm_part(name, ".weight", ".gamma"), width),
            .bias = vector(norm_part(name, ".bias", ".beta"), width)};
  }

  // Layer `number` as parameters of nn::Encoder.
  void add_parameters(std::size_t number, StateDict& to) const {
    const TextEncoderConfig& c = settings_.config;
    const LayerNames& n = names_.parts;
    const std::string from = layer_name(number);
    const std::string name = "layers." + std::to_string(number) + ".";
    const auto linear = [&](const char* ours, const char* theirs,
                            std::int64_t out, std::int64_t in) {
      to[name + ours + ".weight"] =
          tensor({from + theirs + ".weight"}, {out, in});
      to[name + ours + ".bias"] = tensor({from + theirs + ".bias"}, {out});
    };
    std::vector<std::string> weights, biases;
    for (const char* part : {n.query, n.key, n.value}) {
      weights.push_back(from + part + ".weight");
      biases.push_back(from + part + ".bias");
    }
    to[name + "self_attn.in_proj_weight"] =
        tensor(weights, {c.model_dim, c.model_dim});
    to[name + "self_attn.in_proj_bias"] = tensor(biases, {c.model_dim});
    linear("self_attn.out_proj", n.out, c.model_dim, c.model_dim);
    linear("linear1", n.up, c.feed_forward_dim, c.model_dim);
    linear("linear2", n.down, c.model_dim, c.feed_forward_dim);
    add_norm(from + n.attention_norm, name + "norm1", to);
    add_norm(from + n.norm, name + "norm2", to);
  }

  void add_norm(const std::string& from, const std::string& name,
                StateDict& to) const {
    const Shape shape = {settings_.config.model_dim};
    to[name + ".weight"] =
        tensor({norm_part(from, ".weight", ".gamma")}, shape);
    to[name + ".bias"] = tensor({norm_part(from, ".bias", ".beta")}, shape);
  }

  // A copy of some tensors of one shape, one under the other.
  Tensor tensor(const std::vector<std::string>& names, Shape shape) const {
    std::vector<float> values;
    for (const std::string& name : names) {
      const EncoderTable one = read(name, shape);
      values.insert(values.end(), one.rows.data(),
                    one.rows.data() + one.rows.size());
    }
    shape[0] *= std::ssize(names);
    return Tensor(std::span<const float>(values), shape);
  }

  nn::detail::TransformerLayerWeights layer(std::size_t number) const {
    const TextEncoderConfig& c = settings_.config;
    const LayerNames& n = names_.parts;
    const std::string at = layer_name(number);
    nn::detail::TransformerLayerWeights layer;
    layer.heads = layer.kv_heads = c.heads;
    layer.head_dim = c.head_dim();
    layer.self.in = together(at, {n.query, n.key, n.value});
    layer.self.out = linear(at + n.out, c.model_dim, c.model_dim);
    layer.self.norms.norm = norm(at + n.attention_norm, c.model_dim);
    layer.feed_forward.activation = settings_.activation;
    layer.feed_forward.up = linear(at + n.up, c.feed_forward_dim, c.model_dim);
    layer.feed_forward.down =
        linear(at + n.down, c.model_dim, c.feed_forward_dim);
    layer.feed_forward.norms.norm = norm(at + n.norm, c.model_dim);
    return layer;
  }

 private:
  // TensorFlow's checkpoints had other names.
  std::string norm_part(const std::string& norm, const char* name,
                        const char* old) const {
    const bool is_old = !file_.contains(prefix_ + norm + name) &&
                        file_.contains(prefix_ + norm + old);
    return norm + (is_old ? old : name);
  }

  std::string layer_name(std::size_t number) const {
    const std::string start = names_.layer;
    if (settings_.family != EncoderFamily::kAlbert) {
      return start + std::to_string(number) + ".";
    }
    const auto inner = static_cast<std::size_t>(settings_.inner_layers);
    return start + std::to_string(number / inner) + ".albert_layers." +
           std::to_string(number % inner) + ".";
  }

  // The projections of queries, keys and values as one.
  PackedLinear together(const std::string& at,
                        const std::array<const char*, 3>& parts) const {
    const std::int64_t dim = settings_.config.model_dim;
    std::vector<EncoderTable> tables;
    std::vector<ConstRows> weights;
    std::vector<float> bias;
    for (const char* part : parts) {
      tables.push_back(table(at + part + ".weight", dim, dim));
      weights.push_back(tables.back().rows);
      const std::vector<float> values = vector(at + part + ".bias", dim);
      bias.insert(bias.end(), values.begin(), values.end());
    }
    PackedLinear all(weights, storage_);
    all.bias = std::move(bias);
    return all;
  }

  EncoderTable read(const std::string& short_name, const Shape& shape) const {
    const std::string name = prefix_ + short_name;
    if (!file_.contains(name)) {
      throw_parse_error(where_.c_str(), "the tensor ", io::in_quotes(name),
                        " is missing; it must be ", to_string(shape));
    }
    if (file_.shape(name) != shape) {
      throw_parse_error(where_.c_str(), "the tensor ", io::in_quotes(name),
                        " must be ", to_string(shape),
                        ", as config.json says; it is ",
                        to_string(file_.shape(name)));
    }
    const auto bytes = file_.data(name);
    const std::array<std::int64_t, 2> extents = {
        shape.size() == 2 ? shape[0] : 1, shape.back()};
    EncoderTable table;
    if (file_.dtype(name) == DType::kFloat32 &&
        reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0) {
      table.rows = {reinterpret_cast<const float*>(bytes.data()), extents};
      return table;
    }
    table.copy = Tensor(shape);
    float* const to = table.copy.values<float>().data();
    switch (file_.dtype(name)) {
      case DType::kFloat32:
        widen<float>(bytes, to);
        break;
      case DType::kFloat16:
        widen<Float16>(bytes, to);
        break;
      case DType::kBFloat16:
        widen<BFloat16>(bytes, to);
        break;
      default:
        throw_parse_error(where_.c_str(), "the tensor ", io::in_quotes(name),
                          " must be float32, float16 or bfloat16; it is ",
                          to_string(file_.dtype(name)));
    }
    table.rows = {to, extents};
    return table;
  }

  const SafetensorsFile& file_;
  std::string where_;
  const EncoderSettings& settings_;
  const ops::WeightStorage storage_;
  const FamilyNames& names_;
  std::string prefix_;
};

// Which bucket the distance belongs to: near ones have one each, farther ones
// share them, ever more. In float, as MPNet was trained.
std::int64_t bucket_of(std::int64_t key_minus_query, std::int64_t buckets) {
  constexpr float kFarthest = 128;
  const std::int64_t half = buckets / 2;
  const std::int64_t first = key_minus_query > 0 ? half : 0;
  const std::int64_t distance = std::abs(key_minus_query);
  const std::int64_t exact = half / 2;
  if (distance < exact) return first + distance;
  const auto start = static_cast<float>(exact);
  const float share = std::log(static_cast<float>(distance) / start) /
                      std::log(kFarthest / start);
  const auto beyond =
      static_cast<std::int64_t>(share * static_cast<float>(half - exact));
  return first + std::min(exact + beyond, half - 1);
}

Tensor relative_bias_of(ConstRows table, std::int64_t length) {
  const std::int64_t heads = table.extent(1);
  Tensor bias({heads, 2 * length - 1});
  const auto rows = bias.view<float, 2>();
  for (std::int64_t d = 1 - length; d < length; ++d) {
    const float* const values = table.at(bucket_of(d, table.extent(0)));
    for (std::int64_t h = 0; h < heads; ++h) {
      rows.at(h)[d + length - 1] = values[h];
    }
  }
  return bias;
}

}  // namespace

StateDict encoder_parameters(const EncoderFolder& folder, std::int64_t places) {
  const EncoderSettings& s = folder.settings;
  const SafetensorsFile file = SafetensorsFile::open(folder.weights);
  const Reader reader(file, folder.weights, s, ops::WeightStorage::kFloat32);
  const std::int64_t dim = s.config.model_dim;
  const auto rows_of = [dim](const EncoderTable& table, std::int64_t first,
                             std::int64_t count) {
    return Tensor(
        std::span(table.rows.at(first), static_cast<std::size_t>(count * dim)),
        {count, dim});
  };
  const std::string start = "embeddings.";
  StateDict to;
  to["embedding.weight"] =
      reader.tensor({start + "word_embeddings.weight"}, {s.config.vocab, dim});
  to["positions.weight"] = rows_of(
      reader.table(start + "position_embeddings.weight", s.positions, dim),
      s.first_position, places);
  if (s.types > 0) {
    // A text alone is all of the first type.
    to["token_type.weight"] = rows_of(
        reader.table(start + "token_type_embeddings.weight", s.types, dim), 0,
        1);
  }
  reader.add_norm(start + "LayerNorm", "embedding_norm", to);
  for (std::int64_t i = 0; i < s.config.layers; ++i) {
    reader.add_parameters(static_cast<std::size_t>(i), to);
  }
  return to;
}

EncoderWeights::EncoderWeights(const std::filesystem::path& path,
                               const EncoderSettings& s, Threads threads,
                               ops::WeightStorage storage)
    : file(SafetensorsFile::open(path)) {
  const Reader reader(file, path, s, storage);
  const TextEncoderConfig& c = s.config;
  const std::string start = "embeddings.";
  words =
      reader.table(start + "word_embeddings.weight", c.vocab, s.embedding_dim);
  positions = reader.table(start + "position_embeddings.weight", s.positions,
                           s.embedding_dim);
  if (s.types > 0) {
    types = reader.table(start + "token_type_embeddings.weight", s.types,
                         s.embedding_dim);
  }
  embedding_norm = reader.norm(start + "LayerNorm", s.embedding_dim);
  if (s.family == EncoderFamily::kAlbert) {
    projection = reader.linear("encoder.embedding_hidden_mapping_in",
                               c.model_dim, s.embedding_dim);
  }
  if (s.buckets > 0) {
    const EncoderTable table = reader.table(
        "encoder.relative_attention_bias.weight", s.buckets, c.heads);
    relative_bias = relative_bias_of(table.rows, c.max_length);
  }
  const bool shared = s.family == EncoderFamily::kAlbert;
  const std::int64_t different = shared ? s.groups * s.inner_layers : c.layers;
  layers.resize(static_cast<std::size_t>(different));
  parallel_for(threads, different, [&](std::int64_t i) {
    const auto number = static_cast<std::size_t>(i);
    layers[number] = reader.layer(number);
  });
  const auto rounds = static_cast<double>(c.layers / s.inner_layers);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    // ALBERT: round i / inner_layers runs through the layers of its group.
    const auto group =
        static_cast<std::int64_t>(static_cast<double>(i / s.inner_layers) /
                                  (rounds / static_cast<double>(s.groups)));
    order.push_back(static_cast<std::size_t>(
        shared ? group * s.inner_layers + i % s.inner_layers : i));
  }
}

}  // namespace regard::tasks
