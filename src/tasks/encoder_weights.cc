// SPDX-License-Identifier: Apache-2.0
#include "tasks/encoder_weights.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "tasks/parameter_source.h"
#include "tasks/rounded_state.h"

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

void widen(DType type, std::span<const std::byte> bytes, float* to) {
  switch (type) {
    case DType::kFloat32:
      return widen<float>(bytes, to);
    case DType::kFloat16:
      return widen<Float16>(bytes, to);
    default:
      assert(type == DType::kBFloat16);
      return widen<BFloat16>(bytes, to);
  }
}
bool is_float(DType type) {
  return type == DType::kFloat32 || type == DType::kFloat16 ||
         type == DType::kBFloat16;
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
    std::vector<float> bias = vector(name + ".bias", out);
    if (has_codes(name + ".weight")) {
      const Parameter weight = parameter(name + ".weight", out, in);
      PackedLinear linear =
          pack_parameters(std::array{ParameterRows{&weight, 0, out}}, storage_);
      linear.bias = std::move(bias);
      return linear;
    }
    const EncoderTable weight = table(name + ".weight", out, in);
    return PackedLinear(weight.rows, bias, storage_);
  }

  // The names of the matrices of layer `number`.
  std::vector<std::string> matrices(std::size_t number) const {
    const LayerNames& n = names_.parts;
    std::vector<std::string> names;
    for (const char* part : {n.query, n.key, n.value, n.out, n.up, n.down}) {
      names.push_back(full(layer_name(number) + part + ".weight"));
    }
    return names;
  }

  std::string full(const std::string& name) const {
    if (!file_.contains(prefix_ + name)) {
      throw_parse_error(where_.c_str(), "the tensor ",
                        io::in_quotes(prefix_ + name), " is missing");
    }
    return prefix_ + name;
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
  bool has_codes(const std::string& name) const {
    return file_.contains(prefix_ + name) &&
           !is_float(file_.dtype(prefix_ + name));
  }

  // A matrix of few bits that is read row by row, or one of floats.
  Parameter parameter(const std::string& name, std::int64_t out,
                      std::int64_t in) const {
    if (!has_codes(name)) {
      return {{out, in}, [=, this] { return tensor({name}, {out, in}); }};
    }
    const DType type = file_.dtype(prefix_ + name);
    const bool four_bits = type == DType::kUInt8;
    if (!four_bits && type != DType::kInt8) {
      throw_parse_error(where_.c_str(), "the tensor ",
                        io::in_quotes(prefix_ + name),
                        " must be float32, float16, bfloat16, int8 or uint8; "
                        "it is ",
                        to_string(type));
    }
    const std::int64_t row_bytes = four_bits ? in / 2 : in;
    expect(name, {out, row_bytes}, type);
    const std::string scale_name = name + kScalesEnding;
    const std::int64_t groups = groups_of(scale_name, out, in, four_bits);
    const DType scale_type = file_.dtype(prefix_ + scale_name);
    if (four_bits) expect(name + kMinimaEnding, {out, groups}, scale_type);
    const std::byte* const codes = file_.data(prefix_ + name).data();
    const std::byte* const scales = file_.data(prefix_ + scale_name).data();
    const std::byte* const minima =
        four_bits ? file_.data(prefix_ + name + kMinimaEnding).data() : nullptr;
    const auto read = [=](std::int64_t row, std::int8_t* to, float* to_scales,
                          float* to_minima) {
      const std::byte* const from = codes + row * row_bytes;
      if (four_bits) {
        for (std::int64_t i = 0; i < in; ++i) {
          const int both = std::to_integer<int>(from[i / 2]);
          to[i] = static_cast<std::int8_t>(i % 2 == 0 ? both & 15 : both >> 4);
        }
      } else {
        std::memcpy(to, from, static_cast<std::size_t>(in));
      }
      const auto bytes = static_cast<std::size_t>(groups) * size_of(scale_type);
      const auto row_of = [&](const std::byte* all) {
        return std::span(all + static_cast<std::size_t>(row) * bytes, bytes);
      };
      widen(scale_type, row_of(scales), to_scales);
      if (four_bits) widen(scale_type, row_of(minima), to_minima);
    };
    const std::int64_t group = in / groups;
    const auto load = [=] {
      Tensor values(Shape{out, in});
      std::vector<std::int8_t> row(static_cast<std::size_t>(in));
      std::vector<float> s(static_cast<std::size_t>(groups)), m(s);
      float* to = values.values<float>().data();
      for (std::int64_t r = 0; r < out; ++r) {
        read(r, row.data(), s.data(), m.data());
        for (std::size_t i = 0; i < row.size(); ++i) {
          const std::size_t g = i / static_cast<std::size_t>(group);
          *to++ = s[g] * static_cast<float>(row[i]) + m[g];
        }
      }
      return values;
    };
    return {{out, in},
            load,
            Parameter::Codes{{.group = group,
                              .four_bits = four_bits,
                              .half_scales = scale_type == DType::kFloat16,
                              .has_minima = four_bits},
                             read}};
  }

  void expect(const std::string& short_name, const Shape& shape,
              DType type) const {
    const std::string name = full(short_name);
    if (file_.shape(name) != shape || file_.dtype(name) != type) {
      throw_parse_error(where_.c_str(), "the tensor ", io::in_quotes(name),
                        " must be ", to_string(type), " ", to_string(shape),
                        "; it is ", to_string(file_.dtype(name)), " ",
                        to_string(file_.shape(name)));
    }
  }

  std::int64_t groups_of(const std::string& short_name, std::int64_t out,
                         std::int64_t in, bool four_bits) const {
    const std::string name = full(short_name);
    const Shape& shape = file_.shape(name);
    const DType type = file_.dtype(name);
    const std::int64_t groups = shape.size() == 2 ? shape[1] : 0;
    const std::int64_t most =
        four_bits ? 32 : kernels::QuantisedLayout::kLargestGroup;
    const bool fits = (type == DType::kFloat32 || type == DType::kFloat16) &&
                      groups > 0 && shape[0] == out && in % groups == 0 &&
                      in / groups % 8 == 0 && in / groups <= most;
    if (!fits) {
      throw_parse_error(where_.c_str(), "the tensor ", io::in_quotes(name),
                        " must be float32 or float16 [", out,
                        ", groups], where a group has a multiple of 8 of the ",
                        in, " columns, at most ", most, "; it is ",
                        to_string(type), " ", to_string(shape));
    }
    return groups;
  }

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
    std::vector<float> bias;
    bool any_codes = false;
    for (const char* part : parts) {
      const std::vector<float> values = vector(at + part + ".bias", dim);
      bias.insert(bias.end(), values.begin(), values.end());
      any_codes |= has_codes(at + part + ".weight");
    }
    std::array<Parameter, 3> parameters;
    std::array<ParameterRows, 3> rows{};
    std::vector<EncoderTable> tables;
    std::vector<ConstRows> weights;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string name = at + parts[i] + ".weight";
      if (any_codes) {
        parameters[i] = parameter(name, dim, dim);
        rows[i] = {&parameters[i], 0, dim};
      } else {
        tables.push_back(table(name, dim, dim));
        weights.push_back(tables.back().rows);
      }
    }
    PackedLinear all = any_codes ? pack_parameters(rows, storage_)
                                 : PackedLinear(weights, storage_);
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
    if (!is_float(file_.dtype(name))) {
      throw_parse_error(where_.c_str(), "the tensor ", io::in_quotes(name),
                        " must be float32, float16 or bfloat16; it is ",
                        to_string(file_.dtype(name)));
    }
    table.copy = Tensor(shape);
    float* const to = table.copy.values<float>().data();
    widen(file_.dtype(name), bytes, to);
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

std::vector<std::string> encoder_matrices(const SafetensorsFile& file,
                                          const EncoderFolder& folder) {
  const EncoderSettings& s = folder.settings;
  const Reader reader(file, folder.weights, s, ops::WeightStorage::kFloat32);
  std::vector<std::string> names;
  const bool shared = s.family == EncoderFamily::kAlbert;
  if (shared) {
    names.push_back(reader.full("encoder.embedding_hidden_mapping_in.weight"));
  }
  const std::int64_t different =
      shared ? s.groups * s.inner_layers : s.config.layers;
  for (std::int64_t i = 0; i < different; ++i) {
    for (std::string& name : reader.matrices(static_cast<std::size_t>(i))) {
      names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

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
