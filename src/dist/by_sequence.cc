// SPDX-License-Identifier: Apache-2.0
// Attention over ranks by sequence. In one process the state of a row (maximum,
// sum, output) visits the splits of the keys in index order; here it does the
// same, while the keys come from one rank after the other. So every rank has
// the bits of one process, whatever the number of ranks.
#include "dist/by_sequence.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "attention/engine.h"
#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "attention/row_blocks.h"
#include "attention/untyped.h"
#include "dist/block.h"
#include "dist/key_stream.h"
#include "dist/query_chunks.h"
#include "kernels/attention_states.h"
#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"

namespace regard::dist {
namespace {

constexpr const char* kWhere = "dist::attention_forward";
constexpr int kBlockRows = 4 * kernels::kGroupRows;

// Where element 0 would be if data were element `index`. Nobody reads there; by
// numbers, since no pointer may point there.
template <typename T>
T* before(T* data, std::int64_t index) {
  // Something that is not null, where there is nothing.
  alignas(64) static std::byte nothing[64];
  const auto at = data == nullptr ? reinterpret_cast<std::uintptr_t>(nothing)
                                  : reinterpret_cast<std::uintptr_t>(data);
  return reinterpret_cast<T*>(at -
                              static_cast<std::uintptr_t>(index) * sizeof(T));
}

// The view of a whole sequence of which only the positions from `begin` on are
// in memory. Masks, biases and draws count the whole sequence, and nobody asks
// for the rest.
template <typename T, typename View>
TensorView<T, 4> whole_view(View part, std::int64_t begin,
                            std::int64_t length) {
  part.shape[2] = length;
  return {before(static_cast<T*>(part.data), begin * part.strides[2]),
          part.shape, part.strides};
}

// Some rows of a chunk, and their state so far.
struct RowsWithState {
  detail::RowBlock rows;
  AlignedBuffer memory;
  bool started = false;     // the state has some keys
  bool skip_zeros = false;  // the second time
  bool done = false;        // written
  float* state() { return reinterpret_cast<float*>(memory.data()); }
};

template <typename T>
class BySequence {
 public:
  BySequence(Communicator& ranks, std::int64_t q_len, std::int64_t kv_len,
             const AttentionOptions& options)
      : ranks_(ranks), q_len_(q_len), kv_len_(kv_len), options_(options) {}

  void run(ConstUntypedView<4> q, ConstUntypedView<4> k, ConstUntypedView<4> v,
           UntypedView<4> out) {
    chunks_ = send_queries(ranks_, q_len_, q, v.shape[3]);
    k_ = packed(k);
    v_ = packed(v);
    own_keys_ = part_of(kv_len_, ranks_.rank(), ranks_.size()).begin;
    for (std::size_t n = 0; n < 2; ++n) make_rows(n, k.shape[1]);
    find_needs();
    const auto add = [this](KeyWindow& window, Part keys) {
      add_keys(window, keys);
    };
    visit_keys(ranks_, {k_, v_, kv_len_}, needs_, add);
    // What is not finite may stand behind a mask: once more, with care.
    const auto again = gather_values(ranks_, static_cast<char>(!finish()));
    if (std::find(again.begin(), again.end(), 1) != again.end()) {
      visit_keys(ranks_, {k_, v_, kv_len_}, needs_, add);
      finish();
    }
    return_results(ranks_, q_len_, chunks_, out, options_.log_sum_exp);
  }

 private:
  void make_rows(std::size_t n, std::int64_t kv_heads) {
    const UntypedView<4> q = chunks_[n].q.view();
    const std::int64_t d_v = chunks_[n].out.view().shape[3];
    const std::int64_t group = q.shape[1] / kv_heads;
    const std::int64_t end = chunks_[n].queries.end * group;
    for (std::int64_t b = 0; b < q.shape[0]; ++b) {
      for (std::int64_t h = 0; h < kv_heads; ++h) {
        for (std::int64_t row = chunks_[n].queries.begin * group; row < end;
             row += kBlockRows) {
          const auto count =
              static_cast<int>(std::min<std::int64_t>(kBlockRows, end - row));
          rows_[n].push_back({.rows = {b, h, row, count},
                              .memory = AlignedBuffer(
                                  kernels::attention_state_floats(count, d_v) *
                                  sizeof(float))});
        }
      }
    }
  }

  // body(block, rows) for all rows of a chunk, side by side: as if all keys
  // were there, which are from `first_key` on.
  template <typename Body>
  void for_rows(std::size_t n, Block& k, Block& v, std::int64_t first_key,
                const Body& body) {
    QueryChunk& chunk = chunks_[n];
    const std::int64_t first = chunk.queries.begin;
    AttentionOptions options = options_;
    if (options.log_sum_exp.data() != nullptr) {
      const auto lse = chunk.rows.view<float, 3>();
      options.log_sum_exp = {before(lse.data(), first),
                             {lse.extent(0), lse.extent(1), q_len_},
                             lse.strides()};
    }
    const detail::Problem<T> problem(
        whole_view<const T>(chunk.q.const_view(), first, q_len_),
        whole_view<const T>(k.const_view(), first_key, kv_len_),
        whole_view<const T>(v.const_view(), first_key, kv_len_), options,
        kWhere);
    const auto out = whole_view<T>(chunk.out.view(), first, q_len_);
    const detail::EntryMasks<T> masks(problem);
    const detail::BlockMemory<T> memory(problem, kBlockRows,
                                        masks.dense_parts());
    parallel_for(options.threads, std::ssize(rows_[n]), [&](std::int64_t i) {
      RowsWithState& rows = rows_[n][static_cast<std::size_t>(i)];
      masks.with(rows.rows.index, [&](const BoundMask& mask) {
        body(memory.describe(rows.rows, mask, out), rows);
      });
    });
  }

  // Which keys the two chunks of each rank see, from the start of a split on:
  // one range where they meet.
  void find_needs() {
    KeyNeeds needs{need_of(0), need_of(1)};
    if (needs[0].size() == 0 ||
        (needs[1].size() > 0 && needs[1].begin < needs[0].begin)) {
      std::swap(needs[0], needs[1]);
    }
    if (needs[1].size() > 0 && needs[1].begin <= needs[0].end) {
      needs[0].end = std::max(needs[0].end, needs[1].end);
      needs[1] = {0, 0};
    }
    needs_ = gather_values(ranks_, needs);
  }

  Part need_of(std::size_t n) {
    std::mutex mutex;
    Part need{kv_len_, 0};
    for_rows(n, k_, v_, own_keys_,
             [&](const kernels::AttentionBlock& block, RowsWithState&) {
               const std::lock_guard lock(mutex);
               for (int i = 0; i < block.row_count; ++i) {
                 const kernels::AttentionRow& row = block.rows[i];
                 if (row.begin >= row.end) continue;
                 need.begin = std::min(need.begin, row.begin);
                 need.end = std::max(need.end, row.end);
               }
             });
    if (need.begin >= need.end) return {0, 0};
    return {need.begin - need.begin % kernels::kSplitKeys, need.end};
  }

  // The splits of some keys, into the states that want them.
  void add_keys(KeyWindow& window, Part keys) {
    for (std::size_t n = 0; n < 2; ++n) {
      for_rows(n, window.k, window.v, window.begin,
               [&](const kernels::AttentionBlock& block, RowsWithState& rows) {
                 add_block(block, keys, rows);
               });
    }
  }

  static void add_block(kernels::AttentionBlock block, Part keys,
                        RowsWithState& rows) {
    if (rows.done) return;
    const Part seen = restrict_rows(block, keys);
    if (seen.size() == 0) return;
    const std::int64_t first = seen.begin / kernels::kSplitKeys;
    const std::int64_t last =
        (seen.end + kernels::kSplitKeys - 1) / kernels::kSplitKeys;
    kernels::attention_add_splits(block, first, last, rows.state(),
                                  rows.started, rows.skip_zeros);
    rows.started = true;
  }

  // Lets the rows see no other keys; which ones any of them sees.
  static Part restrict_rows(kernels::AttentionBlock& block, Part keys) {
    // They stand in this thread's scratch, where describe() wrote them.
    auto* const rows = const_cast<kernels::AttentionRow*>(block.rows);
    Part seen{std::numeric_limits<std::int64_t>::max(), 0};
    for (int i = 0; i < block.row_count; ++i) {
      const Part own = intersection({rows[i].begin, rows[i].end}, keys);
      rows[i].begin = own.begin;
      rows[i].end = own.end;
      if (own.size() == 0) continue;
      seen.begin = std::min(seen.begin, own.begin);
      seen.end = std::max(seen.end, own.end);
    }
    if (seen.end == 0) seen = {keys.begin, keys.begin};
    // A range that is empty must not reach out of the keys that are there.
    for (int i = 0; i < block.row_count; ++i) {
      if (rows[i].begin == rows[i].end) {
        rows[i].begin = rows[i].end = seen.begin;
      }
    }
    block.same_keys = false;
    return seen;
  }

  // Writes the results of the chunks. False where some must be visited again.
  bool finish() {
    std::atomic<bool> finite = true;
    for (std::size_t n = 0; n < 2; ++n) {
      for_rows(n, k_, v_, own_keys_,
               [&](const kernels::AttentionBlock& block, RowsWithState& rows) {
                 if (!finish_block(block, rows)) finite = false;
               });
    }
    return finite;
  }

  static bool finish_block(kernels::AttentionBlock block, RowsWithState& rows) {
    if (rows.done) return true;
    restrict_rows(block, {0, 0});  // the keys are not here any more
    if (!rows.started) {
      kernels::attention_add_splits(block, 0, 1, rows.state(), false, false);
    }
    rows.done =
        kernels::attention_finish(block, rows.state()) || rows.skip_zeros;
    rows.started = false;
    rows.skip_zeros = true;
    return rows.done;
  }

  Communicator& ranks_;
  std::int64_t q_len_, kv_len_;
  const AttentionOptions& options_;
  QueryChunks chunks_;
  std::array<std::vector<RowsWithState>, 2> rows_;
  Block k_, v_;                  // of this rank
  std::int64_t own_keys_ = 0;    // the first of them
  std::vector<KeyNeeds> needs_;  // by rank
};

}  // namespace

void forward_by_sequence(Communicator& ranks, ConstUntypedView<4> q,
                         ConstUntypedView<4> k, ConstUntypedView<4> v,
                         UntypedView<4> out, std::int64_t q_len,
                         std::int64_t kv_len, const AttentionOptions& options) {
  require(
      options.sequences.q_offsets.empty() &&
          options.sequences.kv_offsets.empty(),
      kWhere,
      "packed sequences are spread by heads: there must be as many kv_heads "
      "as ranks; a mask of documents can be spread by sequence");
  require(options.compute == Compute::kFloat32 && detail::engine_available(),
          kWhere,
          "by sequence, attention is computed in float32, on a machine "
          "with vectors that regard knows");
  detail::with_element_type(q.dtype, kWhere, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, double>) {
      BySequence<T>(ranks, q_len, kv_len, options).run(q, k, v, out);
    }
  });
}

}  // namespace regard::dist
