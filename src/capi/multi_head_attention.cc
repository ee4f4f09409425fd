// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/multi_head_attention.h"

#include <string>
#include <utility>

#include "capi/arguments.h"
#include "regard/io/safetensors.h"

namespace {

using namespace regard;        // NOLINT: the C functions stand outside of it
using namespace regard::capi;  // NOLINT
using nn::MultiHeadAttention;

nn::MultiHeadAttentionConfig config_of(const regard_mha_config* given,
                                       const char* where) {
  const auto from = read_struct(given, where, "config");
  require(from.reserved == 0, where, "reserved must be 0; it is ",
          from.reserved);
  nn::MultiHeadAttentionConfig to{.model_dim = from.model_dim,
                                  .heads = from.heads,
                                  .kv_heads = from.kv_heads,
                                  .key_dim = from.key_dim,
                                  .value_dim = from.value_dim,
                                  .head_dim = from.head_dim,
                                  .value_head_dim = from.value_head_dim,
                                  .bias = from.no_bias == 0,
                                  .bias_kv = from.bias_kv != 0,
                                  .add_zero_attn = from.add_zero_attn != 0,
                                  .score = score_of(from.score, where)};
  if (from.has_scale != 0) to.scale = static_cast<float>(from.scale);
  return to;
}

// The parameters whose names begin with the prefix, without it.
StateDict parameters_of(const char* path, const std::string& prefix,
                        const char* where) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  StateDict parameters;
  for (const std::string& name : file.names()) {
    if (name.starts_with(prefix)) {
      parameters.emplace(name.substr(prefix.size()), file.tensor(name));
    }
  }
  require(!parameters.empty(), where, "'", path,
          "' has no parameter whose name begins with '", prefix, "'");
  return parameters;
}

template <int Rank>
void forward(const MultiHeadAttention& layer, const regard_tensor* query,
             const regard_tensor* key, const regard_tensor* value,
             const regard_tensor* out,
             const nn::MultiHeadAttentionOptions& options, const char* where) {
  layer.forward(typed_view<const float, Rank>(query, where, "query"),
                typed_view<const float, Rank>(key, where, "key"),
                typed_view<const float, Rank>(value, where, "value"),
                typed_view<float, Rank>(out, where, "out"), options);
}

}  // namespace

regard_status regard_mha_create(const regard_mha_config* config, uint64_t seed,
                                regard_mha** layer) {
  constexpr const char* kWhere = "regard_mha_create";
  return create(layer, kWhere, "layer", [&] {
    return MultiHeadAttention(config_of(config, kWhere), seed);
  });
}

regard_status regard_mha_load(const regard_mha_config* config, const char* path,
                              const char* prefix, regard_mha** layer) {
  constexpr const char* kWhere = "regard_mha_load";
  return create(layer, kWhere, "layer", [&] {
    const auto checked = config_of(config, kWhere);
    not_null(path, kWhere, "path");
    return MultiHeadAttention(
        checked, parameters_of(path, prefix == nullptr ? "" : prefix, kWhere));
  });
}

void regard_mha_free(regard_mha* layer) { delete layer; }

regard_status regard_mha_forward(const regard_mha* layer,
                                 const regard_tensor* query,
                                 const regard_tensor* key,
                                 const regard_tensor* value,
                                 const regard_tensor* out,
                                 const regard_mha_options* options) {
  constexpr const char* kWhere = "regard_mha_forward";
  return guarded([&] {
    const MultiHeadAttention& of = not_null(layer, kWhere, "layer").layer;
    not_null(query, kWhere, "query");
    not_null(out, kWhere, "out");
    if (key == nullptr) key = query;
    if (value == nullptr) value = key;
    const auto from = read_options(options, kWhere);
    nn::MultiHeadAttentionOptions to{
        .bias = typed_view<const float, 4>(from.bias, kWhere, "bias"),
        .alibi_slopes =
            typed_span<const float>(from.alibi_slopes, kWhere, "alibi_slopes"),
        .softcap = static_cast<float>(from.softcap),
        .weights = typed_view<float, 4>(from.weights, kWhere, "weights"),
        .average_weights = typed_view<float, 3>(from.average_weights, kWhere,
                                                "average_weights"),
        .threads = threads_of(from.threads, from.pool, kWhere),
        .compute = compute_of(from.compute, kWhere)};
    if (from.mask != nullptr) to.mask = from.mask->mask;
    const int rank = read_tensor(query, kWhere, "query").rank;
    require(rank == 2 || rank == 3, kWhere,
            "query must be [batch, q_len, model_dim] or [q_len, model_dim]; "
            "its rank is ",
            rank);
    if (rank == 3) return forward<3>(of, query, key, value, out, to, kWhere);
    forward<2>(of, query, key, value, out, to, kWhere);
  });
}
