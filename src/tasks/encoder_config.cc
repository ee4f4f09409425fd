// SPDX-License-Identifier: Apache-2.0
#include "tasks/encoder_config.h"

#include <algorithm>
#include <array>

#include "json/json.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace {

using text::Field;

constexpr std::int64_t kMostLayers = 1024;

std::int64_t size_or(const Field& file, const char* key,
                     std::int64_t otherwise) {
  return file.has(key) ? size_in(file, key) : otherwise;
}

struct Family {
  const char* type;  // model_type
  EncoderFamily family;
  const char* name;
};
constexpr std::array kFamilies = {
    Family{"bert", EncoderFamily::kBert, "bert"},
    Family{"roberta", EncoderFamily::kRoberta, "roberta"},
    Family{"xlm-roberta", EncoderFamily::kRoberta, "roberta"},
    Family{"camembert", EncoderFamily::kRoberta, "roberta"},
    Family{"distilbert", EncoderFamily::kDistilBert, "distilbert"},
    Family{"mpnet", EncoderFamily::kMpnet, "mpnet"},
    Family{"albert", EncoderFamily::kAlbert, "albert"},
};

const Family& family_of(const Field& file) {
  const Field type = file["model_type"];
  for (const Family& family : kFamilies) {
    if (type.text() == family.type) return family;
  }
  type.fail("must be bert, roberta, xlm-roberta, camembert, distilbert, mpnet ",
            "or albert; it is ", io::in_quotes(type.text()));
}

ops::Activation activation_of(const Field& file, const char* key,
                              const char* otherwise) {
  const std::string name = file.text(key, otherwise);
  if (name == "gelu" || name == "gelu_python") return ops::Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" ||
      name == "gelu_fast") {
    return ops::Activation::kGeluTanh;
  }
  if (name == "relu") return ops::Activation::kRelu;
  if (name == "silu" || name == "swish") return ops::Activation::kSilu;
  file[key].fail(
      "must be gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu or silu; it "
      "is ",
      io::in_quotes(name));
}

void refuse(const Field& file, const char* key, const char* why) {
  if (file.flag(key, false)) file[key].fail("must be false: ", why);
}

// The padding piece of models that count positions from behind its number.
void count_from_padding(EncoderSettings& s, std::int64_t padding) {
  s.padding = static_cast<std::int32_t>(padding);
  s.first_position = padding + 1;
}

void check_plain_positions(const Field& file) {
  if (file.text("position_embedding_type", "absolute") != "absolute") {
    file["position_embedding_type"].fail(
        "must be absolute; it is ",
        io::in_quotes(file.text("position_embedding_type", "")));
  }
}

void read_sizes(const Field& file, EncoderSettings& s) {
  TextEncoderConfig& c = s.config;
  const bool distil = s.family == EncoderFamily::kDistilBert;
  c.vocab = size_in(file, "vocab_size");
  c.model_dim = size_in(file, distil ? "dim" : "hidden_size");
  c.layers =
      size_in(file, distil ? "n_layers" : "num_hidden_layers", kMostLayers);
  c.heads = size_in(file, distil ? "n_heads" : "num_attention_heads");
  c.feed_forward_dim =
      size_in(file, distil ? "hidden_dim" : "intermediate_size");
  s.positions = size_in(file, "max_position_embeddings");
  if (c.model_dim % c.heads != 0) {
    file.fail("must have heads that divide the hidden size; they are ", c.heads,
              " and ", c.model_dim);
  }
  s.embedding_dim = c.model_dim;
  s.activation =
      distil ? activation_of(file, "activation", "gelu")
             : activation_of(
                   file, "hidden_act",
                   s.family == EncoderFamily::kAlbert ? "gelu_new" : "gelu");
  if (!distil && file.has("layer_norm_eps")) {
    const double epsilon = file["layer_norm_eps"].real();
    if (!(epsilon > 0 && epsilon < 1)) {
      file["layer_norm_eps"].expect("a number between 0 and 1");
    }
    s.norm_epsilon = static_cast<float>(epsilon);
  }
}

void read_albert(const Field& file, EncoderSettings& s) {
  s.embedding_dim = size_in(file, "embedding_size");
  s.groups = size_or(file, "num_hidden_groups", 1);
  s.inner_layers = size_or(file, "inner_group_num", 1);
  if (s.groups > s.config.layers) {
    file["num_hidden_groups"].fail("must not be above num_hidden_layers; they ",
                                   "are ", s.groups, " and ", s.config.layers);
  }
  if (s.inner_layers > kMostLayers / s.config.layers) {
    file["inner_group_num"].fail("times num_hidden_layers must not be above ",
                                 kMostLayers, "; they are ", s.inner_layers,
                                 " and ", s.config.layers);
  }
  s.config.layers *= s.inner_layers;
}

}  // namespace

std::int64_t size_in(const text::Field& file, const char* key,
                     std::int64_t most) {
  const Field field = file[key];
  const Json& value = field.json();
  const bool fits = value.is_integer() && value.get<std::int64_t>() >= 1 &&
                    value.get<std::int64_t>() <= most;
  if (!fits) {
    field.expect(("an integer from 1 to " + std::to_string(most)).c_str());
  }
  return value.get<std::int64_t>();
}

bool is_encoder_type(std::string_view type) {
  return std::any_of(kFamilies.begin(), kFamilies.end(),
                     [&](const Family& f) { return type == f.type; });
}

EncoderSettings parse_encoder_config(const std::string& json,
                                     const std::string& where) {
  const auto root = text::parse_json(json, where);
  const Field file(root, where);
  EncoderSettings s;
  const Family& family = family_of(file);
  s.family = family.family;
  s.config.family = family.name;
  s.config.pooling = {Pooling::kMean};
  refuse(file, "is_decoder", "this reads encoders");
  refuse(file, "add_cross_attention", "this reads encoders");
  read_sizes(file, s);
  switch (s.family) {
    case EncoderFamily::kRoberta: {
      const std::int64_t padding =
          file.has("pad_token_id") ? file["pad_token_id"].id() : 1;
      count_from_padding(s, padding);
      check_plain_positions(file);
      s.types = size_or(file, "type_vocab_size", 2);
      break;
    }
    case EncoderFamily::kMpnet:
      count_from_padding(s, 1);
      s.buckets = size_or(file, "relative_attention_num_buckets", 32);
      // Half for each direction, and half of those for single distances.
      if (s.buckets < 4 || s.buckets > 256) {
        file["relative_attention_num_buckets"].expect(
            "an integer from 4 to 256");
      }
      break;
    case EncoderFamily::kAlbert:
      read_albert(file, s);
      [[fallthrough]];
    case EncoderFamily::kBert:
      check_plain_positions(file);
      s.types = size_or(file, "type_vocab_size", 2);
      break;
    case EncoderFamily::kDistilBert:
      break;
  }
  s.config.max_length = s.positions - s.first_position;
  if (s.config.max_length < 1) {
    file["max_position_embeddings"].fail(
        "leaves no place for a token: the first one has position ",
        s.first_position, " of ", s.positions);
  }
  return s;
}

}  // namespace regard::tasks
