// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/explain.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include "attention/engine.h"
#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "attention/row_blocks.h"
#include "attention/tile_count.h"
#include "attention/untyped.h"
#include "core/scaled.h"
#include "kernels/attention_forward.h"
#include "regard/kernels/targets.h"

namespace regard {
namespace {

using detail::BlockMemory;
using detail::EnginePlan;
using detail::Entry;
using detail::EntryMasks;
using detail::Problem;
using detail::scaled;

constexpr const char* kWhere = "explain";

void explain_fused(const Problem<float>& p, const EntryMasks<float>& masks,
                   Explanation& e) {
  const EnginePlan plan(p);
  e.path = AttentionPath::kFused;
  e.threads = plan.threads;
  e.row_blocks = plan.blocks.size();
  e.rows_per_block = plan.blocks.rows();
  e.splits = plan.splits;
  e.tile_rows = kernels::kGroupRows;
  e.tile_keys = kernels::kKeyBlock;
  const detail::TileCount tiles = detail::count_tiles(p, masks, plan.blocks);
  e.full_tiles = tiles.full;
  e.mixed_tiles = tiles.mixed;
  e.skipped_tiles = tiles.skipped;
  e.visited_pairs = tiles.visited_pairs;
  const BlockMemory memory(p, plan.blocks.rows(), masks.dense_parts());
  const std::size_t states =
      static_cast<std::size_t>(plan.blocks.size() * plan.splits) *
      kernels::attention_state_floats(plan.blocks.rows(), p.d_v);
  e.scratch_bytes = static_cast<std::int64_t>(
      static_cast<std::size_t>(plan.threads) * memory.bytes() +
      states * sizeof(float));
}

void explain_plain(const Problem<float>& p, Explanation& e) {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < (p.packed ? p.entries : 1); ++i) {
    const Entry entry = p.entry(i);
    longest = std::max(longest, entry.kv_len);
    e.threads = std::max(
        e.threads, thread_count(p.options.threads, p.heads * entry.q_len));
  }
  e.row_blocks = e.rows;
  e.rows_per_block = 1;
  e.visited_pairs = e.pairs;
  const std::int64_t bytes = e.shape.dtype == DType::kFloat64 ? 8 : 4;
  e.scratch_bytes = e.threads * (longest + p.d_v) * bytes;
}

Explanation explain_checked(const AttentionShape& s,
                            const AttentionOptions& options) {
  // The rules of double are those of float.
  const Problem<float> p(
      detail::hollow_view(s.dtype, {s.batch, s.heads, s.q_len, s.d_k}),
      detail::hollow_view(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.d_k}),
      detail::hollow_view(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.d_v}),
      options, kWhere);
  Explanation e{.shape = s, .simd_target = simd_target()};
  const bool fused = s.dtype != DType::kFloat64 && detail::engine_available();
  if (fused) e.path = AttentionPath::kFused;
  if (p.entries == 0 || p.heads == 0 || s.q_len == 0) return e;
  const EntryMasks<float> masks(p);
  for (std::int64_t i = 0; i < (p.packed ? p.entries : 1); ++i) {
    const Entry entry = p.entry(i);
    const std::int64_t rows =
        (p.packed ? 1 : p.entries) * p.heads * entry.q_len;
    e.rows += rows;
    e.pairs += rows * entry.kv_len;
  }
  e.visible_pairs = detail::count_visible_pairs(p, masks);
  e.flops = 2.0 * static_cast<double>(s.d_k + s.d_v) *
            static_cast<double>(e.visible_pairs);
  if (fused) {
    explain_fused(p, masks, e);
  } else {
    explain_plain(p, e);
  }
  return e;
}

// "1,234,567"
std::string grouped(std::int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string count_of(std::int64_t n, const char* one, const char* many) {
  return grouped(n) + " " + (n == 1 ? one : many);
}

std::string percent(std::int64_t part, std::int64_t whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%",
                whole == 0 ? 0.0
                           : 100.0 * static_cast<double>(part) /
                                 static_cast<double>(whole));
  return text;
}

}  // namespace

Explanation explain(const AttentionShape& shape,
                    const AttentionOptions& options) {
  const std::array<std::int64_t, 7> extents{
      shape.batch,  shape.heads, shape.kv_heads, shape.q_len,
      shape.kv_len, shape.d_k,   shape.d_v};
  require(std::none_of(extents.begin(), extents.end(),
                       [](std::int64_t n) { return n < 0; }),
          kWhere,
          "no extent may be negative; batch, heads, kv_heads, q_len, kv_len, "
          "d_k and d_v are ",
          to_string(extents));
  double pairs = static_cast<double>(shape.batch);
  for (const std::int64_t n : {shape.heads, shape.q_len, shape.kv_len}) {
    pairs *= static_cast<double>(n);
  }
  require(pairs < 9e18, kWhere,
          "batch * heads * q_len * kv_len must be below 9e18, or it cannot be "
          "counted; it is ",
          pairs);
  require(options.compute == Compute::kFloat32, kWhere,
          "compute must be kFloat32: other arithmetic has no tiles to tell of");
  require(detail::is_computed_in_float(shape.dtype) ||
              shape.dtype == DType::kFloat64,
          kWhere,
          "the dtype must be float32, bfloat16, float16 or float64; it is ",
          to_string(shape.dtype));
  return explain_checked(shape, options);
}

std::string to_string(const Explanation& e) {
  const AttentionShape& s = e.shape;
  std::ostringstream text;
  text << "attention  batch " << s.batch << ", heads " << s.heads;
  if (s.kv_heads != s.heads) text << " on " << s.kv_heads;
  text << ", " << count_of(s.q_len, "query", "queries") << " x "
       << count_of(s.kv_len, "key", "keys") << ", d_k " << s.d_k << ", d_v "
       << s.d_v << ", " << to_string(s.dtype) << "\n";
  text << "path       "
       << (e.path == AttentionPath::kFused ? "fused, " + e.simd_target
                                           : std::string("plain loops"))
       << ", " << count_of(e.threads, "thread", "threads") << "\n";
  text << "pairs      " << grouped(e.visible_pairs) << " of "
       << grouped(e.pairs) << " visible (" << percent(e.visible_pairs, e.pairs)
       << ")\n";
  if (e.path == AttentionPath::kFused) {
    const std::int64_t visited = e.full_tiles + e.mixed_tiles;
    text << "tiles      " << grouped(visited) << " of "
         << grouped(visited + e.skipped_tiles) << " visited, " << e.tile_rows
         << " rows x " << e.tile_keys << " keys: " << grouped(e.full_tiles)
         << " full, " << grouped(e.mixed_tiles) << " mixed, "
         << grouped(e.skipped_tiles) << " skipped\n";
    text << "rows       " << grouped(e.rows) << " in "
         << count_of(e.row_blocks, "block", "blocks") << " of at most "
         << e.rows_per_block << "\n";
    text << "keys       splits of " << grouped(kernels::kSplitKeys) << ", "
         << (e.splits > 0 ? "side by side" : "one after the other") << "\n";
  }
  text << "work       " << scaled(e.flops, "FLOP") << "\n";
  text << "scratch    " << scaled(static_cast<double>(e.scratch_bytes), "B")
       << "\n";
  return text.str();
}

}  // namespace regard
