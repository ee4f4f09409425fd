// SPDX-License-Identifier: Apache-2.0
// Attention over ranks by sequence. In one process the state of a row (maximum,
// sum, output) visits the splits of the keys in index order; here it does the
// same, while the keys come from one rank after the other. So every rank has
// the bits of one process, whatever the number of ranks.
#include "dist/by_sequence.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "attention/engine.h"
#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "attention/row_blocks.h"
#include "dist/block.h"
#include "dist/chunks.h"
#include "dist/seen.h"
#include "dist/stream.h"
#include "kernels/attention_states.h"
#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"

namespace regard::dist {
namespace {

constexpr const char* kWhere = "dist::attention_forward";
constexpr int kBlockRows = 4 * kernels::kGroupRows;

// Some queries that a rank works on.
struct QueryChunk {
  Part queries;  // of the sequence
  Block q, out;
  Tensor rows{Shape{0}};  // log-sum-exp, [batch, heads, queries]
};

// Some rows of a chunk, and their state so far.
struct RowsWithState {
  detail::RowBlock rows;
  AlignedBuffer memory;
  bool started = false;     // the state has some keys
  bool skip_zeros = false;  // the second time
  bool done = false;        // written
  float* state() { return reinterpret_cast<float*>(memory.data()); }
};

class BySequence {
 public:
  BySequence(Communicator& ranks, std::int64_t q_len, std::int64_t kv_len,
             const AttentionOptions& options)
      : ranks_(ranks), q_len_(q_len), kv_len_(kv_len), options_(options) {}

  void run(ConstUntypedView<4> q, ConstUntypedView<4> k, ConstUntypedView<4> v,
           UntypedView<4> out) {
    const Chunks chunks(q_len_, ranks_.size(), 1);
    std::array<Block, 2> queries = fetch(ranks_, chunks, q);
    for (std::size_t n = 0; n < 2; ++n) {
      const std::int64_t count = queries[n].positions();
      chunks_[n] = {chunks.of(ranks_.rank())[n], std::move(queries[n]),
                    Block(q.dtype, count, q.shape[0], q.shape[1], v.shape[3]),
                    Tensor(Shape{q.shape[0], q.shape[1], count})};
      make_rows(n, k.shape[1]);
    }
    const Part held = part_of(kv_len_, ranks_.rank(), ranks_.size());
    keys_ = {held.begin, {packed(k), packed(v)}};
    const Travel travel = make_travel();
    const auto add = [this](Window& window, Part keys) {
      add_keys(window, keys);
    };
    visit(ranks_, travel, add);
    // What is not finite may stand behind a mask: once more, with care.
    const auto again = gather_values(ranks_, static_cast<char>(!finish()));
    if (std::find(again.begin(), again.end(), 1) != again.end()) {
      visit(ranks_, travel, add);
      finish();
    }
    std::array<Block, 2> results{std::move(chunks_[0].out),
                                 std::move(chunks_[1].out)};
    give_back(ranks_, chunks, results, out);
    if (options_.log_sum_exp.data() == nullptr) return;
    for (std::size_t n = 0; n < 2; ++n) {
      results[n] =
          packed(as_const(as_column(chunks_[n].rows.view<float, 3>())));
    }
    give_back(ranks_, chunks, results, as_column(options_.log_sum_exp));
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

  // body(problem, masks, out) about a chunk, as if all keys were there.
  template <typename Body>
  void with_problem(std::size_t n, Window& keys, const Body& body) {
    QueryChunk& chunk = chunks_[n];
    const std::int64_t first = chunk.queries.begin;
    AttentionOptions options = options_;
    if (options.log_sum_exp.data() != nullptr) {
      options.log_sum_exp = whole_rows(chunk.rows, first, q_len_);
    }
    const detail::Problem<float> problem(
        whole_view(chunk.q.const_view(), first, q_len_),
        whole_view(keys.blocks[0].const_view(), keys.begin, kv_len_),
        whole_view(keys.blocks[1].const_view(), keys.begin, kv_len_), options,
        kWhere);
    const detail::EntryMasks<float> masks(problem);
    body(problem, masks, whole_view(chunk.out.view(), first, q_len_));
  }

  // body(block, rows) for all rows of a chunk, side by side.
  template <typename Body>
  void for_rows(std::size_t n, Window& keys, const Body& body) {
    with_problem(
        n, keys,
        [&](const auto& problem, const auto& masks,
            const detail::Elements& out) {
          const detail::BlockMemory memory(problem, kBlockRows,
                                           masks.dense_parts());
          parallel_for(
              options_.threads, std::ssize(rows_[n]), [&](std::int64_t i) {
                RowsWithState& rows = rows_[n][static_cast<std::size_t>(i)];
                masks.with(rows.rows.index, [&](const BoundMask& mask) {
                  body(memory.describe(rows.rows, mask, out), rows);
                });
              });
        });
  }

  // The keys that the two chunks of each rank see, from the start of a split
  // on.
  Travel make_travel() {
    const Needs needs = needs_of(need_of(0), need_of(1), kernels::kSplitKeys);
    return {.pieces = held_pieces(kv_len_, ranks_.size()),
            .own = {&keys_},
            .needs = gather_values(ranks_, needs),
            .unit = kernels::kSplitKeys};
  }

  Part need_of(std::size_t n) {
    Part need{0, 0};
    with_problem(n, keys_,
                 [&](const auto& problem, const auto& masks, const auto&) {
                   need = keys_seen_by(problem, masks, chunks_[n].queries);
                 });
    return need;
  }

  // The splits of some keys, into the states that want them.
  void add_keys(Window& window, Part keys) {
    for (std::size_t n = 0; n < 2; ++n) {
      for_rows(n, window,
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
      for_rows(n, keys_,
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
  std::array<QueryChunk, 2> chunks_;
  std::array<std::vector<RowsWithState>, 2> rows_;
  Window keys_;  // keys and values that this rank holds
};

}  // namespace

void check_by_sequence(const AttentionOptions& options, const char* where) {
  require(
      options.sequences.q_offsets.empty() &&
          options.sequences.kv_offsets.empty(),
      where,
      "packed sequences are spread by heads: there must be as many kv_heads "
      "as ranks, and no dropout; a mask of documents can be spread by "
      "sequence");
  require(options.compute == Compute::kFloat32 && detail::engine_available(),
          where,
          "by sequence, attention is computed in float32, on a machine "
          "with vectors that regard knows");
}

void forward_by_sequence(Communicator& ranks, ConstUntypedView<4> q,
                         ConstUntypedView<4> k, ConstUntypedView<4> v,
                         UntypedView<4> out, const SequenceLengths& lengths,
                         const AttentionOptions& options) {
  check_by_sequence(options, kWhere);
  BySequence(ranks, lengths.queries, lengths.keys, options).run(q, k, v, out);
}

}  // namespace regard::dist
