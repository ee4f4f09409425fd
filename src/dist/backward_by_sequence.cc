// SPDX-License-Identifier: Apache-2.0
// Gradients over ranks by sequence, in two passes that wait for nobody's sums:
//
//   1. dq: each rank works on an early and a late chunk of the queries, while
//      keys and values come in index order.
//   2. dk and dv: each works on an early and a late chunk of the keys, while
//      queries and what belongs to them come in index order.
//
// So every sum runs in the order of one process, whatever the number of ranks.
// Scores and d_out . v are computed in both passes: seven products instead of
// five.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/backward_rows.h"
#include "dist/block.h"
#include "dist/by_sequence.h"
#include "dist/chunks.h"
#include "dist/seen.h"
#include "dist/stream.h"
#include "regard/core/aligned_buffer.h"

namespace regard::dist {
namespace {

constexpr const char* kWhere = "dist::attention_backward";
using detail::BackwardParts;
using kernels::BackwardHead;
using kernels::kGroupRows;
using kernels::kKeyBlock;

// Queries that lie in one row group of the kernel lie in 48 queries, for any
// number of heads that share keys.
constexpr std::int64_t kQueryUnit = kGroupRows;

// A call about the whole sequence, of which only some queries and keys are in
// memory. Stays where it is: the problem refers to what is before it.
struct PartialProblem {
  AttentionOptions options;
  detail::BackwardViews<float> inputs;
  detail::GradientViews<float> gradients;
  detail::BackwardProblem<float> backward{inputs, gradients, options};
  detail::EntryMasks<float> masks{backward.forward};
};

// Some rows that read one key-value head, and what the passes keep of them.
class HeadRows {
 public:
  HeadRows(const PartialProblem& problem, std::int64_t index,
           std::int64_t kv_head, Part queries, BackwardParts parts)
      : index_(index),
        kv_head_(kv_head),
        first_(queries.begin),
        rows_(problem.backward, problem.masks, index, kv_head, queries.begin,
              queries.end) {
    const auto lay_out = [&](std::byte* base) {
      MemoryLayout memory(base);
      rows_.lay_out(memory);
      rows_.lay_out(memory, head_, parts);
      return memory.used();
    };
    memory_ = AlignedBuffer(lay_out(nullptr));
    lay_out(memory_.data());
    rows_.describe_head(head_);
    const detail::Problem<float>& p = problem.backward.forward;
    head_.key_run = kernels::backward_key_run(p.d_k, p.d_v);
    // Rows and keys are each one task's: nobody waits for a turn.
    static constexpr auto kNothing = [](std::int64_t) {};
    static const FunctionRef<void(std::int64_t)> no_turn(kNothing);
    head_.begin_turn = head_.end_turn = &no_turn;
    // Rows are told from their masks at once: which keys are wanted.
    rows_.describe_rows(0, rows_.count());
    for (std::int64_t i = 0; i < rows_.count(); ++i) {
      seen_ = joined(seen_, {rows_.row(i).begin,
                             std::max(rows_.row(i).begin, rows_.row(i).end)});
    }
  }

  std::int64_t index() const { return index_; }
  std::int64_t kv_head() const { return kv_head_; }
  std::int64_t groups() const { return rows_.groups(); }
  std::int64_t count() const { return rows_.count(); }
  // Number i of the queries.
  std::int64_t query(std::int64_t i) const { return first_ + i; }
  Part seen() const { return seen_; }  // keys that some row sees
  float& delta(std::int64_t i) { return head_.deltas[i]; }

  void prepare(std::int64_t group) { kernels::backward_prepare(head_, group); }
  // A run of the keys that `keys` has, which count from the first of all; dk
  // and dv are added to the sums, if there are some.
  void add_keys(const kernels::AttentionKeys& keys, Part run, float* key_sums,
                float* value_sums) const {
    BackwardHead head = head_;
    head.block.keys = keys;
    head.d_key_sums = key_sums;
    head.d_value_sums = value_sums;
    kernels::backward_keys(head, run.begin, run.end,
                           scratch(keys.d_k, keys.d_v));
  }
  void finish() {
    for (std::int64_t g = 0; g < groups(); ++g) {
      kernels::backward_finish(head_, g);
    }
  }
  void sum(detail::HeadSums& sums) const { rows_.sum(head_, sums); }

  static float* scratch(std::int64_t d_k, std::int64_t d_v) {
    return reinterpret_cast<float*>(thread_scratch(
        sizeof(float) * kernels::backward_scratch_floats(
                            kernels::backward_key_run(d_k, d_v), d_k, d_v)));
  }

 private:
  std::int64_t index_, kv_head_, first_;
  detail::BackwardRows rows_;
  BackwardHead head_{};
  AlignedBuffer memory_;
  Part seen_{0, 0};
};

// The keys of a head that are in memory from `begin` on.
kernels::AttentionKeys keys_of(const PartialProblem& problem, Block& k,
                               Block& v, std::int64_t begin, std::int64_t batch,
                               std::int64_t kv_head) {
  const detail::Problem<float>& p = problem.backward.forward;
  kernels::AttentionKeys keys = detail::describe_call(p, batch, kv_head).keys;
  const auto at = [&](Block& block) {
    return whole_view(block.const_view(), begin, p.k.extent(2))
        .at(batch, kv_head, 0);
  };
  keys.k = at(k);
  keys.v = at(v);
  keys.k_stride = k.view().strides[2];
  keys.v_stride = v.view().strides[2];
  return keys;
}

class BackwardBySequence {
 public:
  BackwardBySequence(Communicator& ranks, const UntypedBackwardInputs& inputs,
                     const UntypedGradients& gradients,
                     const SequenceLengths& lengths,
                     const AttentionOptions& options)
      : ranks_(ranks),
        inputs_(inputs),
        gradients_(gradients),
        lengths_(lengths),
        options_(options),
        queries_(lengths.queries, ranks.size(), 1),
        keys_(lengths.keys, ranks.size(), kKeyBlock) {}

  void run() {
    begin_rows();
    if (!gradients_.q.is_null() || wants_sums()) differentiate_rows();
    if (gradients_.k.is_null() && gradients_.v.is_null()) return;
    const std::vector<Part> seen_by = find_queries_of_keys();
    rows_ = {};
    differentiate_keys(seen_by);
  }

 private:
  // An early or a late chunk of the queries. What the second pass needs of it
  // travels: q, d_out, log-sum-exp and delta.
  struct QueryChunk {
    Window travelling;
    Block out, d_q;
    Tensor lse, d_lse;  // [batch, heads, queries]
    std::unique_ptr<PartialProblem> problem;
  };
  enum { kQ, kDOut, kLse, kDelta };

  // Queries from `begin` on, as a problem takes them. Null: there is none.
  struct Rows {
    std::int64_t begin;
    Block *q, *out, *d_out, *d_q;
    Tensor *lse, *d_lse;
  };

  // Keys that one task sums the gradients of.
  struct KeyRun {
    std::size_t chunk;
    std::int64_t batch, kv_head;
    Part keys;
    AlignedBuffer sums;  // [keys][d_k], then [keys][d_v], padded
    float* value_sums;
    float* key_sums() { return reinterpret_cast<float*>(sums.data()); }
  };

  std::int64_t batch() const { return inputs_.q.shape[0]; }
  std::int64_t kv_heads() const { return inputs_.k.shape[1]; }
  std::int64_t group() const { return inputs_.q.shape[1] / kv_heads(); }
  std::int64_t key_run() const {
    return kernels::backward_key_run(inputs_.k.shape[3], inputs_.v.shape[3]);
  }
  bool wants_sums() const {
    return !gradients_.alibi_slopes.is_null() || !gradients_.sinks.is_null() ||
           !gradients_.head_scales.is_null();
  }

  // The problem of some rows; their gradients, too, where there is a d_q.
  std::unique_ptr<PartialProblem> make_problem(const Rows& rows) {
    const std::int64_t q_len = lengths_.queries, kv_len = lengths_.keys;
    const auto whole = [&](Block* block) {
      return whole_view(block->const_view(), rows.begin, q_len);
    };
    const auto keys = [&](Block& block) {
      return whole_view(block.const_view(), held_.begin, kv_len);
    };
    detail::BackwardViews<float> inputs{.q = whole(rows.q),
                                        .k = keys(held_.blocks[0]),
                                        .v = keys(held_.blocks[1]),
                                        .out = whole(rows.out),
                                        .d_out = whole(rows.d_out),
                                        .d_log_sum_exp = {}};
    if (rows.d_lse != nullptr) {
      inputs.d_log_sum_exp = whole_rows(*rows.d_lse, rows.begin, q_len);
    }
    detail::GradientViews<float> gradients;
    if (rows.d_q != nullptr) {
      const auto per_head = [](const UntypedView<1>& view) {
        return std::span(static_cast<float*>(view.data),
                         static_cast<std::size_t>(view.shape[0]));
      };
      gradients = {.q = whole_view(rows.d_q->view(), rows.begin, q_len),
                   .k = {},
                   .v = {},
                   .bias = {},
                   .alibi_slopes = per_head(gradients_.alibi_slopes),
                   .sinks = per_head(gradients_.sinks),
                   .head_scales = per_head(gradients_.head_scales)};
    }
    AttentionOptions options = options_;
    options.log_sum_exp = whole_rows(*rows.lse, rows.begin, q_len);
    return std::unique_ptr<PartialProblem>(new PartialProblem{
        .options = options, .inputs = inputs, .gradients = gradients});
  }

  // Brings the queries to where they are worked on, and prepares their rows.
  void begin_rows() {
    held_ = {part_of(lengths_.keys, ranks_.rank(), ranks_.size()).begin,
             {packed(inputs_.k), packed(inputs_.v)}};
    auto q = fetch(ranks_, queries_, inputs_.q);
    auto out = fetch(ranks_, queries_, inputs_.out);
    auto d_out = fetch(ranks_, queries_, inputs_.d_out);
    auto lse =
        fetch(ranks_, queries_, as_const(as_column(options_.log_sum_exp)));
    const bool has_d_lse = !inputs_.d_log_sum_exp.is_null();
    std::array<Block, 2> d_lse;
    if (has_d_lse) {
      d_lse = fetch(ranks_, queries_, as_column(inputs_.d_log_sum_exp));
    }
    for (std::size_t n = 0; n < 2; ++n) {
      QueryChunk& chunk = chunks_[n];
      chunk.lse = as_rows(lse[n]);
      if (has_d_lse) chunk.d_lse = as_rows(d_lse[n]);
      chunk.d_q = q[n].like(q[n].positions());
      chunk.out = std::move(out[n]);
      Block deltas = lse[n].like(lse[n].positions());
      chunk.travelling = {queries_.of(ranks_.rank())[n].begin,
                          {std::move(q[n]), std::move(d_out[n]),
                           std::move(lse[n]), std::move(deltas)}};
      chunk.problem =
          make_problem({.begin = chunk.travelling.begin,
                        .q = &chunk.travelling.blocks[kQ],
                        .out = &chunk.out,
                        .d_out = &chunk.travelling.blocks[kDOut],
                        .d_q = &chunk.d_q,
                        .lse = &chunk.lse,
                        .d_lse = has_d_lse ? &chunk.d_lse : nullptr});
      make_rows(n);
    }
  }

  // Blocks of rows, each a task.
  void make_rows(std::size_t n) {
    QueryChunk& chunk = chunks_[n];
    const std::int64_t step = std::max<std::int64_t>(
        1, kernels::kMaxRows / std::max<std::int64_t>(group(), 1));
    const Part all{chunk.travelling.begin, chunk.travelling.end()};
    std::vector<HeadRows>& rows = rows_[n];
    for (std::int64_t b = 0; b < batch(); ++b) {
      for (std::int64_t h = 0; h < kv_heads(); ++h) {
        for (std::int64_t at = all.begin; at < all.end; at += step) {
          rows.emplace_back(*chunk.problem, b, h,
                            Part{at, std::min(at + step, all.end)},
                            BackwardParts::kRowsAndKeys);
        }
      }
    }
    const auto deltas = chunk.travelling.blocks[kDelta].view().as<float>();
    parallel_for(options_.threads, std::ssize(rows), [&](std::int64_t i) {
      HeadRows& some = rows[static_cast<std::size_t>(i)];
      for (std::int64_t g = 0; g < some.groups(); ++g) some.prepare(g);
      for_deltas(some, chunk.travelling.begin, deltas,
                 [](float& own, float& travelling) { travelling = own; });
    });
  }

  // body(delta of a row, where it travels).
  template <typename Body>
  void for_deltas(HeadRows& rows, std::int64_t begin,
                  const TensorView<float, 4>& deltas, const Body& body) {
    for (std::int64_t i = 0; i < rows.count(); ++i) {
      const std::int64_t head = rows.kv_head() * group() + i % group();
      body(rows.delta(i),
           *deltas.at(rows.index(), head, rows.query(i / group()) - begin));
    }
  }

  // Pass 1.
  void differentiate_rows() {
    std::array<Part, 2> seen{};
    for (std::size_t n = 0; n < 2; ++n) {
      const PartialProblem& p = *chunks_[n].problem;
      seen[n] = keys_seen_by(p.backward.forward, p.masks,
                             queries_.of(ranks_.rank())[n]);
    }
    visit(
        ranks_,
        {.pieces = held_pieces(lengths_.keys, ranks_.size()),
         .own = {&held_},
         .needs = gather_values(ranks_, needs_of(seen[0], seen[1], kKeyBlock)),
         .unit = kKeyBlock},
        [this](Window& window, Part keys) {
          for (std::size_t n = 0; n < 2; ++n) add_keys(n, window, keys);
        });
    for (std::vector<HeadRows>& rows : rows_) {
      parallel_for(options_.threads, std::ssize(rows), [&](std::int64_t i) {
        rows[static_cast<std::size_t>(i)].finish();
      });
    }
    if (!gradients_.q.is_null()) {
      std::array<Block, 2> d_q{std::move(chunks_[0].d_q),
                               std::move(chunks_[1].d_q)};
      give_back(ranks_, queries_, d_q, gradients_.q);
    }
    if (wants_sums()) sum_heads();
  }

  void add_keys(std::size_t n, Window& window, Part keys) {
    const PartialProblem& problem = *chunks_[n].problem;
    parallel_for(options_.threads, std::ssize(rows_[n]), [&](std::int64_t i) {
      const HeadRows& rows = rows_[n][static_cast<std::size_t>(i)];
      const kernels::AttentionKeys here =
          keys_of(problem, window.blocks[0], window.blocks[1], window.begin,
                  rows.index(), rows.kv_head());
      for (std::int64_t at = keys.begin; at < keys.end; at += key_run()) {
        const Part run{at, std::min(at + key_run(), keys.end)};
        if (intersection(run, rows.seen()).size() == 0) continue;
        rows.add_keys(here, run, nullptr, nullptr);
      }
    });
  }

  // What there is one of a head: the sums go from chunk to chunk of the
  // queries, and then to all.
  void sum_heads() {
    detail::HeadSums sums(batch(), inputs_.q.shape[1]);
    const auto move = [&](int from, int to) {
      if (from == to) return;
      for (std::vector<double>* values :
           {&sums.slopes, &sums.sinks, &sums.scales}) {
        const auto bytes = std::as_writable_bytes(std::span(*values));
        if (from == ranks_.rank()) {
          ranks_.start(std::array{Outgoing{to, bytes}}, {});
        } else if (to == ranks_.rank()) {
          ranks_.start({}, std::array{Incoming{from, bytes}});
        }
      }
      ranks_.finish();
    };
    for (std::size_t c = 0; c < queries_.parts.size(); ++c) {
      const int worker = queries_.worker(c);
      if (c > 0) move(queries_.worker(c - 1), worker);
      if (worker != ranks_.rank()) continue;
      const bool is_early = c < queries_.parts.size() / 2;
      for (const HeadRows& rows : rows_[is_early ? 0 : 1]) rows.sum(sums);
    }
    const int last = queries_.worker(queries_.parts.size() - 1);
    for (std::vector<double>* values :
         {&sums.slopes, &sums.sinks, &sums.scales}) {
      broadcast(ranks_, last, std::as_writable_bytes(std::span(*values)));
    }
    sums.write(chunks_[0].problem->gradients);
  }

  // For each chunk of the keys, the queries that see some of it.
  std::vector<Part> find_queries_of_keys() {
    const std::size_t count = keys_.parts.size();
    const auto ranks = static_cast<std::size_t>(ranks_.size());
    std::vector<Part> all(ranks * count, Part{0, 0});  // [rank][chunk]
    const auto of_rank = [&](std::size_t rank) {
      return std::span(all).subspan(rank * count, count);
    };
    const std::span<Part> own =
        of_rank(static_cast<std::size_t>(ranks_.rank()));
    for (std::size_t n = 0; n < 2; ++n) {
      const PartialProblem& p = *chunks_[n].problem;
      add_queries_that_see(p.backward.forward, p.masks,
                           queries_.of(ranks_.rank())[n], keys_.parts, own);
    }
    std::vector<std::span<std::byte>> parts;
    for (std::size_t i = 0; i < ranks; ++i) {
      parts.push_back(std::as_writable_bytes(of_rank(i)));
    }
    all_gather(ranks_, parts);
    std::vector<Part> seen_by(count, Part{0, 0});
    for (std::size_t i = 0; i < all.size(); ++i) {
      seen_by[i % count] = joined(seen_by[i % count], all[i]);
    }
    return seen_by;
  }

  // Pass 2.
  void differentiate_keys(const std::vector<Part>& seen_by) {
    k_ = fetch(ranks_, keys_, inputs_.k);
    v_ = fetch(ranks_, keys_, inputs_.v);
    for (std::size_t n = 0; n < 2; ++n) make_runs(n);
    Travel travel{.pieces = {},
                  .own = {&chunks_[0].travelling, &chunks_[1].travelling},
                  .needs = {},
                  .unit = kQueryUnit};
    for (std::size_t c = 0; c < queries_.parts.size(); ++c) {
      travel.pieces.push_back({queries_.worker(c), queries_.parts[c]});
    }
    for (int i = 0; i < ranks_.size(); ++i) {
      const auto [early, late] = keys_.numbers(i);
      travel.needs.push_back(
          needs_of(seen_by[early], seen_by[late], kQueryUnit));
    }
    visit(ranks_, travel, [this](Window& window, Part queries) {
      add_queries(window, queries);
    });
    write_keys();
  }

  void make_runs(std::size_t n) {
    const auto padded = [](std::int64_t d) { return (d + 15) / 16 * 16; };
    const std::int64_t k_columns = padded(inputs_.k.shape[3]);
    const std::int64_t v_columns = padded(inputs_.v.shape[3]);
    const Part keys = keys_.of(ranks_.rank())[n];
    for (std::int64_t b = 0; b < batch(); ++b) {
      for (std::int64_t h = 0; h < kv_heads(); ++h) {
        for (std::int64_t at = keys.begin; at < keys.end; at += key_run()) {
          const Part own{at, std::min(at + key_run(), keys.end)};
          const auto floats =
              static_cast<std::size_t>(own.size() * (k_columns + v_columns));
          KeyRun run{n,      b, h, own, AlignedBuffer(floats * sizeof(float)),
                     nullptr};
          std::fill_n(run.key_sums(), floats, 0.0f);
          run.value_sums = run.key_sums() + own.size() * k_columns;
          runs_.push_back(std::move(run));
        }
      }
    }
  }

  kernels::AttentionKeys keys_of_run(const PartialProblem& problem,
                                     const KeyRun& run) {
    return keys_of(problem, k_[run.chunk], v_[run.chunk],
                   keys_.of(ranks_.rank())[run.chunk].begin, run.batch,
                   run.kv_head);
  }

  void add_queries(Window& window, Part queries) {
    Tensor lse = as_rows(window.blocks[kLse]);
    // Deltas come with the rows: no matter what `out` would give.
    const auto problem = make_problem({.begin = window.begin,
                                       .q = &window.blocks[kQ],
                                       .out = &window.blocks[kDOut],
                                       .d_out = &window.blocks[kDOut],
                                       .d_q = nullptr,
                                       .lse = &lse,
                                       .d_lse = nullptr});
    std::vector<HeadRows> heads;
    for (std::int64_t i = 0; i < batch() * kv_heads(); ++i) {
      heads.emplace_back(*problem, i / kv_heads(), i % kv_heads(), queries,
                         BackwardParts::kKeys);
    }
    const std::int64_t groups = heads[0].groups();
    parallel_for(
        options_.threads, std::ssize(heads) * groups, [&](std::int64_t i) {
          heads[static_cast<std::size_t>(i / groups)].prepare(i % groups);
        });
    const auto deltas = window.blocks[kDelta].view().as<float>();
    for (HeadRows& rows : heads) {
      for_deltas(rows, window.begin, deltas,
                 [](float& own, float& travelling) { own = travelling; });
    }
    parallel_for(options_.threads, std::ssize(runs_), [&](std::int64_t i) {
      KeyRun& run = runs_[static_cast<std::size_t>(i)];
      const HeadRows& rows =
          heads[static_cast<std::size_t>(run.batch * kv_heads() + run.kv_head)];
      if (intersection(run.keys, rows.seen()).size() == 0) return;
      rows.add_keys(keys_of_run(*problem, run), run.keys, run.key_sums(),
                    run.value_sums);
    });
  }

  // The sums as gradients: a pass over no rows.
  void write_keys() {
    std::array<Block, 2> d_k, d_v;
    for (std::size_t n = 0; n < 2; ++n) {
      d_k[n] = k_[n].like(k_[n].positions());
      d_v[n] = v_[n].like(v_[n].positions());
    }
    const PartialProblem& problem = *chunks_[0].problem;
    for (KeyRun& run : runs_) {
      const std::int64_t begin = keys_.of(ranks_.rank())[run.chunk].begin;
      const auto at = [&](Block& block) {
        return whole_view(block.view(), begin, lengths_.keys)
            .at(run.batch, run.kv_head, 0);
      };
      BackwardHead head{};
      head.block = detail::describe_call(problem.backward.forward, run.batch,
                                         run.kv_head);
      head.block.keys = keys_of_run(problem, run);
      head.key_run = key_run();
      head.d_k = at(d_k[run.chunk]);
      head.d_v = at(d_v[run.chunk]);
      head.d_k_stride = d_k[run.chunk].view().strides[2];
      head.d_v_stride = d_v[run.chunk].view().strides[2];
      head.d_key_sums = run.key_sums();
      head.d_value_sums = run.value_sums;
      kernels::backward_keys(
          head, run.keys.begin, run.keys.end,
          HeadRows::scratch(inputs_.k.shape[3], inputs_.v.shape[3]));
    }
    if (!gradients_.k.is_null()) give_back(ranks_, keys_, d_k, gradients_.k);
    if (!gradients_.v.is_null()) give_back(ranks_, keys_, d_v, gradients_.v);
  }

  Communicator& ranks_;
  const UntypedBackwardInputs& inputs_;
  const UntypedGradients& gradients_;
  const SequenceLengths lengths_;
  const AttentionOptions& options_;
  const Chunks queries_, keys_;
  Window held_;  // keys and values, as the caller has them
  std::array<QueryChunk, 2> chunks_;
  std::array<std::vector<HeadRows>, 2> rows_;  // by chunk, in pass 1
  std::array<Block, 2> k_, v_;                 // by chunk, in pass 2
  std::vector<KeyRun> runs_;
};

}  // namespace

void backward_by_sequence(Communicator& ranks,
                          const UntypedBackwardInputs& inputs,
                          const UntypedGradients& gradients,
                          const SequenceLengths& lengths,
                          const AttentionOptions& options) {
  check_by_sequence(options, kWhere);
  BackwardBySequence(ranks, inputs, gradients, lengths, options).run();
}

}  // namespace regard::dist
