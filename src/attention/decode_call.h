// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/kv_store.h"
#include "mask/bound_mask.h"
#include "regard/attention/decode.h"

namespace regard::detail {

// The keys that a query sees: late, and what a ring keeps of the first ones.
struct RowKeys {
  KeyRange late, early;
};

// The arguments of one attention_decode, checked. Borrows everything but keys.
struct DecodeCall {
  TensorView<const float, 4> q;
  const KVStore& store;
  std::span<const std::int64_t> sequences;
  TensorView<float, 4> out;
  const AttentionOptions& options;

  std::int64_t entries, heads, kv_heads, group, q_len;
  float scale = 0;
  std::vector<RowKeys> keys;  // [entries][q_len]

  DecodeCall(TensorView<const float, 4> q, const KVStore& store,
             std::span<const std::int64_t> sequences, TensorView<float, 4> out,
             const AttentionOptions& options);

  const KVSequence& sequence(std::int64_t entry) const {
    return store[sequences[static_cast<std::size_t>(entry)]];
  }
  const RowKeys& row_keys(std::int64_t entry, std::int64_t query) const {
    return keys[static_cast<std::size_t>(entry * q_len + query)];
  }
  float head_scale(std::int64_t head) const {
    return options.head_scales.empty()
               ? scale
               : scale * options.head_scales[static_cast<std::size_t>(head)];
  }

 private:
  void check_shapes() const;
  void check_options();
  void find_keys();
};

// The call by plain loops, where the machine has no kernels: copies the keys
// and values of each sequence and calls attention_forward.
void decode_plainly(const DecodeCall& call);

}  // namespace regard::detail
