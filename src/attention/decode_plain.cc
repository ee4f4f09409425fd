// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "attention/decode_call.h"

namespace regard::detail {
namespace {

// Stored elements as floats.
void decode_row(DType storage, const std::byte* from, std::int64_t n,
                float scale, float* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    switch (storage) {
      case DType::kBFloat16:
        to[i] = static_cast<float>(reinterpret_cast<const BFloat16*>(from)[i]);
        break;
      case DType::kFloat16:
        to[i] = static_cast<float>(reinterpret_cast<const Float16*>(from)[i]);
        break;
      case DType::kInt8:
        to[i] = scale * static_cast<float>(
                            reinterpret_cast<const std::int8_t*>(from)[i]);
        break;
      default:
        to[i] = reinterpret_cast<const float*>(from)[i];
    }
  }
}

// The view of one entry: its first extent is 1.
template <typename T, int Rank>
TensorView<T, Rank> entry_of(const TensorView<T, Rank>& view,
                             std::int64_t entry) {
  auto shape = view.shape();
  shape[0] = 1;
  return {view.at(view.extent(0) == 1 ? 0 : entry), shape, view.strides()};
}

void decode_entry(const DecodeCall& call, std::int64_t entry) {
  const KVStore& store = call.store;
  const KVCacheOptions& o = store.options();
  const std::int64_t length = call.sequence(entry).length;
  std::vector<float> k(static_cast<std::size_t>(o.kv_heads * length * o.d_k));
  std::vector<float> v(static_cast<std::size_t>(o.kv_heads * length * o.d_v));
  std::vector<float> stored(static_cast<std::size_t>(o.d_k + o.d_v));
  auto* const k_row = reinterpret_cast<std::byte*>(stored.data());
  auto* const v_row = reinterpret_cast<std::byte*>(stored.data() + o.d_k);
  // What each query sees, pair by pair, because a ring shows two ranges.
  const auto pairs =
      std::make_unique<bool[]>(static_cast<std::size_t>(call.q_len * length));
  for (std::int64_t key = 0; key < length; ++key) {
    bool seen = false;
    const auto shows = [key](KeyRange range) {
      return range.begin <= key && key < range.end;
    };
    for (std::int64_t query = 0; query < call.q_len; ++query) {
      const RowKeys& row = call.row_keys(entry, query);
      const bool shown = shows(row.late) || shows(row.early);
      pairs[static_cast<std::size_t>(query * length + key)] = shown;
      seen = seen || shown;
    }
    if (!seen) continue;  // a ring may have overwritten it
    for (std::int64_t head = 0; head < o.kv_heads; ++head) {
      float scales[2] = {1, 1};
      store.read_token(call.sequences[static_cast<std::size_t>(entry)], head,
                       key, k_row, v_row, scales);
      decode_row(o.storage, k_row, o.d_k, scales[0],
                 k.data() + (head * length + key) * o.d_k);
      decode_row(o.storage, v_row, o.d_v, scales[1],
                 v.data() + (head * length + key) * o.d_v);
    }
  }
  AttentionOptions options = call.options;
  options.mask = mask::keep({pairs.get(), {1, 1, call.q_len, length}});
  if (!options.bias.is_null()) {
    auto shape = options.bias.shape();
    shape[0] = 1;
    if (shape[3] != 1) shape[3] = length;
    options.bias = {entry_of(options.bias, entry).data(), shape,
                    options.bias.strides()};
  }
  if (!options.log_sum_exp.is_null()) {
    options.log_sum_exp = entry_of(options.log_sum_exp, entry);
  }
  attention_forward(
      entry_of(call.q, entry),
      TensorView<const float, 4>(k.data(), {1, o.kv_heads, length, o.d_k}),
      TensorView<const float, 4>(v.data(), {1, o.kv_heads, length, o.d_v}),
      entry_of(call.out, entry), options);
}

}  // namespace

void decode_plainly(const DecodeCall& call) {
  for (std::int64_t entry = 0; entry < call.entries; ++entry) {
    decode_entry(call, entry);
  }
}

}  // namespace regard::detail
