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
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attention/engine.h"
#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "attention/row_blocks.h"
#include "dist/block.h"
#include "dist/chunks.h"
#include "dist/stream.h"
#include "kernels/attention_states.h"
#include "regard/core/error.h"
#include "regard/ops/memory_pool.h"

namespace regard::dist {
namespace {

constexpr const char* kWhere = "dist::attention_forward";
// Some queries that a rank works on.
struct QueryChunk {
  Part queries;  // of the sequence
  Block q, out;
  Tensor rows{Shape{0}};  // log-sum-exp, [batch, heads, queries]
};

// Some rows of a chunk, and their state so far.
struct RowsWithState {
  detail::RowBlock rows;
  Part seen;                       // keys that some of them sees
  std::shared_ptr<float> state{};  // from the first keys to the last
  bool started = false;            // the state has some keys
  bool skip_zeros = false;         // the second time
  bool done = false;               // written
};

class BySequence {
 public:
  BySequence(Communicator& ranks, std::int64_t q_len, std::int64_t kv_len,
             const AttentionOptions& options)
      : ranks_(ranks), q_len_(q_len), kv_len_(kv_len), options_(options) {}

  void run(ConstUntypedView<4> q, ConstUntypedView<4> k, ConstUntypedView<4> v,
           UntypedView<4> out) {
    const Chunks chunks(q_len_, ranks_.size(), 1);
    Fetched queries = room_for(ranks_, chunks, q);
    std::array<Block, 2> places = room_for_results(ranks_, chunks, out);
    const Part held = part_of(kv_len_, ranks_.rank(), ranks_.size());
    keys_ = {held.begin, {packed(k), packed(v)}};
    Needs needs{};
    for (std::size_t n = 0; n < 2; ++n) {
      const Part part = chunks.of(ranks_.rank())[n];
      chunks_[n] = {part, queries.worked_on[n], std::move(places[n]),
                    Tensor(Shape{q.shape[0], q.shape[1], part.size()})};
      make_rows(n, k.shape[1]);
      needs[n] = find_keys(n);
    }
    const Travel travel{
        .pieces = held_pieces(kv_len_, ranks_.size(), kernels::kSplitKeys),
        .own = {&keys_},
        .needs = gather_values(
            ranks_, needs_of(needs[0], needs[1], kernels::kSplitKeys)),
        .unit = kernels::kSplitKeys};
    begin_fetch(ranks_, chunks, queries);
    const auto add = [this](Window& window, Part keys) {
      add_keys(window, keys);
    };
    visit(ranks_, travel, add);
    finish_unseeing();
    // What is not finite may stand behind a mask: once more, with care. Results
    // travel with the question, as nearly always they are the last ones.
    if (give_back(chunks, out)) {
      visit(ranks_, travel, add);
      give_back(chunks, out);
    }
  }

 private:
  // More rows read the keys less often; every thread gets several blocks.
  void make_rows(std::size_t n, std::int64_t kv_heads) {
    const UntypedView<4> q = chunks_[n].q.view();
    const std::int64_t group = q.shape[1] / kv_heads;
    const std::int64_t end = chunks_[n].queries.end * group;
    const std::int64_t begin = chunks_[n].queries.begin * group;
    const std::int64_t all = (end - begin) * q.shape[0] * kv_heads;
    const int threads = thread_count(options_.threads, all);
    block_rows_[n] = kernels::kMaxRows;
    while (threads > 1 && block_rows_[n] > kernels::kGroupRows &&
           all < 8 * threads * block_rows_[n]) {
      block_rows_[n] /= 2;
    }
    for (std::int64_t b = 0; b < q.shape[0]; ++b) {
      for (std::int64_t h = 0; h < kv_heads; ++h) {
        for (std::int64_t row = begin; row < end; row += block_rows_[n]) {
          const auto count = static_cast<int>(
              std::min<std::int64_t>(block_rows_[n], end - row));
          rows_[n].push_back({.rows = {b, h, row, count}, .seen = {0, 0}});
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

  // body(block, rows) for some rows of a chunk, side by side.
  template <typename Body>
  void for_rows(std::size_t n, Window& keys,
                const std::vector<RowsWithState*>& some, const Body& body) {
    if (some.empty()) return;
    with_problem(
        n, keys,
        [&](const auto& problem, const auto& masks,
            const detail::Elements& out) {
          const detail::BlockMemory memory(problem, block_rows_[n],
                                           masks.dense_parts());
          parallel_for(options_.threads, std::ssize(some), [&](std::int64_t i) {
            RowsWithState& rows = *some[static_cast<std::size_t>(i)];
            masks.with(rows.rows.index, [&](const BoundMask& mask) {
              body(memory.describe(rows.rows, mask, out), rows);
            });
          });
        });
  }

  template <typename Condition>
  std::vector<RowsWithState*> rows_where(std::size_t n,
                                         const Condition& condition) {
    std::vector<RowsWithState*> some;
    for (RowsWithState& rows : rows_[n]) {
      if (condition(rows)) some.push_back(&rows);
    }
    return some;
  }

  // The keys that the rows of a chunk see.
  Part find_keys(std::size_t n) {
    const auto all = rows_where(n, [](const auto&) { return true; });
    for_rows(n, keys_, all,
             [&](const kernels::AttentionBlock& block, RowsWithState& rows) {
               for (int i = 0; i < block.row_count; ++i) {
                 const kernels::AttentionRow& row = block.rows[i];
                 rows.seen = joined(rows.seen,
                                    {row.begin, std::max(row.begin, row.end)});
               }
             });
    Part seen{0, 0};
    for (const RowsWithState& rows : rows_[n]) seen = joined(seen, rows.seen);
    return seen;
  }

  // The splits of some keys, into the states that want them. Who has seen its
  // last key is written.
  void add_keys(Window& window, Part keys) {
    for (std::size_t n = 0; n < 2; ++n) {
      const auto some = rows_where(n, [&](const RowsWithState& rows) {
        return !rows.done && intersection(rows.seen, keys).size() > 0;
      });
      for (RowsWithState* rows : some) make_state(n, *rows);
      for_rows(n, window, some,
               [&](const kernels::AttentionBlock& block, RowsWithState& rows) {
                 add_block(block, keys, rows);
                 if (rows.seen.end <= keys.end) finish_block(block, rows);
               });
      for (RowsWithState* rows : some) {
        if (!rows->started) rows->state = nullptr;
      }
    }
  }

  void make_state(std::size_t n, RowsWithState& rows) {
    if (rows.state != nullptr) return;
    rows.state = ops::thread_memory_pool().take(
        static_cast<std::int64_t>(kernels::attention_state_floats(
            rows.rows.count, chunks_[n].out.view().shape[3])));
  }

  static void add_block(kernels::AttentionBlock block, Part keys,
                        RowsWithState& rows) {
    const Part seen = restrict_rows(block, keys);
    if (seen.size() == 0) return;
    const std::int64_t first = seen.begin / kernels::kSplitKeys;
    const std::int64_t last =
        (seen.end + kernels::kSplitKeys - 1) / kernels::kSplitKeys;
    kernels::attention_add_splits(block, first, last, rows.state.get(),
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

  // Sends and takes all results. Whether some rank must go again.
  bool give_back(const Chunks& chunks, const UntypedView<4>& out) {
    std::array<Block, 2> results{chunks_[0].out, chunks_[1].out};
    GivenBack of_out(ranks_, chunks, results, out);
    std::optional<GivenBack> of_rows;
    std::array<Block, 2> columns;
    if (options_.log_sum_exp.data() != nullptr) {
      for (std::size_t n = 0; n < 2; ++n) {
        columns[n] =
            packed(as_const(as_column(chunks_[n].rows.view<float, 3>())));
      }
      of_rows.emplace(ranks_, chunks, columns, as_column(options_.log_sum_exp));
    }
    const auto again =
        gather_values(ranks_, static_cast<char>(again_.exchange(false)));
    of_out.put();
    if (of_rows) of_rows->put();
    return std::find(again.begin(), again.end(), 1) != again.end();
  }

  // Writes the results of rows that see no key at all.
  void finish_unseeing() {
    for (std::size_t n = 0; n < 2; ++n) {
      const auto some = rows_where(
          n, [](const RowsWithState& rows) { return rows.seen.size() == 0; });
      for (RowsWithState* rows : some) make_state(n, *rows);
      for_rows(n, keys_, some,
               [&](const kernels::AttentionBlock& block, RowsWithState& rows) {
                 finish_block(block, rows);
               });
    }
  }

  void finish_block(kernels::AttentionBlock block, RowsWithState& rows) {
    restrict_rows(block, {0, 0});  // no key is asked for
    if (!rows.started) {
      kernels::attention_add_splits(block, 0, 1, rows.state.get(), false,
                                    false);
    }
    rows.done =
        kernels::attention_finish(block, rows.state.get()) || rows.skip_zeros;
    if (!rows.done) again_ = true;
    rows.started = false;
    rows.skip_zeros = true;
  }

  Communicator& ranks_;
  std::int64_t q_len_, kv_len_;
  const AttentionOptions& options_;
  std::array<QueryChunk, 2> chunks_;
  std::array<std::vector<RowsWithState>, 2> rows_;
  std::array<int, 2> block_rows_{};  // at most
  std::atomic<bool> again_ = false;  // something was not finite
  Window keys_;                      // keys and values that this rank holds
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
