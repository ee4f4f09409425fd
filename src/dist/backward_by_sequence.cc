// SPDX-License-Identifier: Apache-2.0
// Gradients over ranks by sequence. Each rank works on an early and a late
// chunk, e and l, of the queries, for dq, and of the keys, for dk and dv. What
// belongs to the other chunks comes to it. A sum over keys or queries must run
// in index order, so that every sum is that of one process, and this order does
// it while no rank waits for the sums of another:
//
//   1. queries before e, to dk and dv; keys before e, to dq
//   2. own queries and keys: (e, e); (e, l) to dk and dv
//   3. queries between e and l, to dk and dv
//   4. own: (l, e)
//   5. keys between e and l, to dq
//   6. own: (e, l) to dq; (l, l)
//   7. queries after l, to dk and dv; keys after l, to dq
//
// Where queries and keys are a rank's own, one pass adds to all three, in five
// products. Otherwise two ranks compute the scores and d_out . v: seven.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "dist/backward_rows.h"
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
        wants_rows_(!gradients.q.is_null() || wants_sums()),
        wants_keys_(!gradients.k.is_null() || !gradients.v.is_null()),
        queries_(lengths.queries, ranks.size(), kQueryUnit),
        keys_(lengths.keys, ranks.size(), kKeyBlock) {}

  void run() {
    begin_rows();
    find_needs();
    if (wants_keys_) {
      for (std::size_t n = 0; n < 2; ++n) make_runs(n);
    }
    add_all();
    std::vector<GivenBack> results;
    if (wants_rows_) write_rows(results);
    if (wants_keys_) write_keys(results);
    ranks_.finish();
    for (GivenBack& result : results) result.put();
  }

 private:
  // An early or a late chunk of the queries. What dk and dv need of it travels:
  // q, d_out, log-sum-exp and delta.
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
      return whole_view(block.const_view(), own_keys_[0].begin, kv_len);
    };
    detail::BackwardViews<float> inputs{.q = whole(rows.q),
                                        .k = keys(own_keys_[0].blocks[0]),
                                        .v = keys(own_keys_[0].blocks[1]),
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

  // Brings keys and queries to where they are worked on, and prepares the rows.
  void begin_rows() {
    std::vector<Fetched> fetched;
    const auto begin = [&](const Chunks& chunks,
                           const ConstUntypedView<4>& held) {
      fetched.push_back(room_for(ranks_, chunks, held));
      begin_fetch(ranks_, chunks, fetched.back());
      return fetched.back().worked_on;
    };
    const auto k = begin(keys_, inputs_.k);
    const auto v = begin(keys_, inputs_.v);
    auto q = begin(queries_, inputs_.q);
    auto out = begin(queries_, inputs_.out);
    auto d_out = begin(queries_, inputs_.d_out);
    auto lse = begin(queries_, as_const(as_column(options_.log_sum_exp)));
    const bool has_d_lse = !inputs_.d_log_sum_exp.is_null();
    std::array<Block, 2> d_lse;
    if (has_d_lse) d_lse = begin(queries_, as_column(inputs_.d_log_sum_exp));
    ranks_.finish();
    for (std::size_t n = 0; n < 2; ++n) {
      own_keys_[n] = {keys_.of(ranks_.rank())[n].begin, {k[n], v[n]}};
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
    // Whole groups of the kernel's rows, which dk and dv are summed by.
    const std::int64_t step =
        kQueryUnit *
        std::max<std::int64_t>(1, kernels::kMaxRows / (kQueryUnit * group()));
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

  // What each rank wants of the keys, and of the queries.
  void find_needs() {
    const auto ranks = static_cast<std::size_t>(ranks_.size());
    key_needs_.assign(ranks, Needs{});
    query_needs_.assign(ranks, Needs{});
    if (wants_rows_) {
      std::array<Part, 2> seen{};
      for (std::size_t n = 0; n < 2; ++n) {
        const PartialProblem& p = *chunks_[n].problem;
        seen[n] = keys_seen_by(p.backward.forward, p.masks,
                               queries_.of(ranks_.rank())[n]);
      }
      key_needs_ = gather_values(ranks_, needs_of(seen[0], seen[1], kKeyBlock));
    }
    if (!wants_keys_) return;
    const std::vector<Part> seen_by = find_queries_of_keys();
    for (std::size_t i = 0; i < ranks; ++i) {
      const auto [early, late] = keys_.numbers(static_cast<int>(i));
      query_needs_[i] = needs_of(seen_by[early], seen_by[late], kQueryUnit);
    }
  }

  // Some queries or keys on their way to a rank.
  struct Arrival {
    bool is_queries;
    int owner;
    Part positions;
  };
  // What comes to a rank, in order: before its first own pairs, the second and
  // the third, and after them.
  std::array<std::vector<Arrival>, 4> arrivals(int rank) const {
    std::array<std::vector<Arrival>, 4> result;
    const auto add = [&](std::size_t when, bool is_queries, std::size_t first,
                         std::size_t last) {
      const Chunks& chunks = is_queries ? queries_ : keys_;
      const Needs& needs =
          (is_queries ? query_needs_
                      : key_needs_)[static_cast<std::size_t>(rank)];
      std::vector<Travel::Piece> pieces;
      for (std::size_t c = first; c < last; ++c) {
        add_pieces(pieces, chunks.worker(c), chunks.parts[c],
                   is_queries ? kQueryUnit : kKeyBlock);
      }
      for (const Travel::Piece& piece : pieces) {
        for (const Part& need : needs) {
          const Part part = intersection(piece.positions, need);
          if (part.size() == 0) continue;
          result[when].push_back({is_queries, piece.owner, part});
        }
      }
    };
    const auto [early, late] = keys_.numbers(rank);
    const std::size_t end = keys_.parts.size();
    add(0, true, 0, early);
    add(0, false, 0, early);
    add(1, true, early + 1, late);
    add(2, false, early + 1, late);
    add(3, true, late + 1, end);
    add(3, false, late + 1, end);
    return result;
  }

  // All that is summed, in the order above. What this rank has is offered at
  // once; what comes next travels while it computes.
  void add_all() {
    give();
    const auto all = arrivals(ranks_.rank());
    std::vector<Arrival> in_order;
    for (const auto& some : all) {
      in_order.insert(in_order.end(), some.begin(), some.end());
    }
    std::size_t next = 0;
    Window coming;
    const auto receive = [&] {
      if (next == in_order.size()) return;
      const Arrival& arrival = in_order[next++];
      coming = own_window(arrival, 0)
                   .like(arrival.positions.begin, arrival.positions.end);
      std::vector<Incoming> receives;
      for (Block& block : coming.blocks) {
        receives.push_back({arrival.owner, block.bytes()});
      }
      ranks_.start({}, receives);
    };
    receive();
    for (std::size_t when = 0; when < all.size(); ++when) {
      for (const Arrival& arrival : all[when]) {
        ranks_.finish_receives();
        Window window = std::move(coming);
        receive();
        if (arrival.is_queries) {
          add_queries(window, arrival.positions);
        } else {
          for (std::size_t n = 0; n < 2; ++n) {
            add_keys(n, window, arrival.positions);
          }
        }
      }
      add_own(when);
    }
  }

  Window& own_window(const Arrival& arrival, std::size_t n) {
    return arrival.is_queries ? chunks_[n].travelling : own_keys_[n];
  }

  // What others want of the own chunks, in the order in which each takes it.
  void give() {
    std::vector<Outgoing> sends;
    for (int to = 0; to < ranks_.size(); ++to) {
      if (to == ranks_.rank()) continue;
      for (const auto& some : arrivals(to)) {
        for (const Arrival& arrival : some) {
          if (arrival.owner != ranks_.rank()) continue;
          const Part part = arrival.positions;
          const bool is_late = part.begin >= own_window(arrival, 0).end();
          Window& window = own_window(arrival, is_late ? 1 : 0);
          for (Block& block : window.blocks) {
            sends.push_back({to, block.bytes({part.begin - window.begin,
                                              part.end - window.begin})});
          }
        }
      }
    }
    ranks_.start(sends, {});
  }

  void add_own(std::size_t when) {
    constexpr std::size_t kEarly = 0, kLate = 1;
    switch (when) {
      case 0:
        add_pairs(kEarly, kEarly, wants_rows_, wants_keys_);
        add_pairs(kEarly, kLate, false, wants_keys_);
        break;
      case 1:
        add_pairs(kLate, kEarly, wants_rows_, wants_keys_);
        break;
      case 2:
        add_pairs(kEarly, kLate, wants_rows_, false);
        add_pairs(kLate, kLate, wants_rows_, wants_keys_);
        break;
    }
  }

  // Own queries and own keys.
  void add_pairs(std::size_t queries, std::size_t keys, bool to_rows,
                 bool to_keys) {
    if (!to_keys) {
      if (to_rows) {
        const Part part = keys_.of(ranks_.rank())[keys];
        add_keys(queries, own_keys_[keys], part);
      }
      return;
    }
    const std::vector<HeadRows>& rows = rows_[queries];
    const std::int64_t heads = batch() * kv_heads();
    const std::int64_t blocks = std::ssize(rows) / heads;
    const std::int64_t runs = runs_of_head(keys);
    if (blocks == 0 || runs == 0) return;
    // Several threads have a run of the keys each; what is added to rows is
    // added when the run before has done so. That one was started earlier.
    std::vector<std::atomic<std::int64_t>> turns(rows.size());
    std::atomic<bool> failed = false;
    const PartialProblem& problem = *chunks_[queries].problem;
    parallel_for(options_.threads, heads * runs, [&](std::int64_t task) {
      const std::int64_t head = task / runs, number = task % runs;
      KeyRun& run = runs_[static_cast<std::size_t>(
          (keys == 0 ? 0 : runs_of_head(0) * heads) + task)];
      try {
        const kernels::AttentionKeys here = keys_of_run(problem, run);
        for (std::int64_t i = head * blocks; i < (head + 1) * blocks; ++i) {
          const auto at = static_cast<std::size_t>(i);
          while (to_rows &&
                 turns[at].load(std::memory_order_acquire) != number) {
            if (failed) return;
            std::this_thread::yield();
          }
          if (intersection(run.keys, rows[at].seen()).size() > 0) {
            rows[at].add_keys(here, run.keys, run.key_sums(), run.value_sums,
                              to_rows);
          }
          turns[at].store(number + 1, std::memory_order_release);
        }
      } catch (...) {
        failed = true;
        throw;
      }
    });
  }

  std::int64_t runs_of_head(std::size_t n) const {
    const std::int64_t keys = keys_.of(ranks_.rank())[n].size();
    return (keys + key_run() - 1) / key_run();
  }

  // dq, and what there is one of a head.
  void write_rows(std::vector<GivenBack>& results) {
    for (std::vector<HeadRows>& rows : rows_) {
      parallel_for(options_.threads, std::ssize(rows), [&](std::int64_t i) {
        rows[static_cast<std::size_t>(i)].finish();
      });
    }
    if (!gradients_.q.is_null()) {
      std::array<Block, 2> d_q{chunks_[0].d_q, chunks_[1].d_q};
      results.emplace_back(ranks_, queries_, d_q, gradients_.q);
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
        rows.add_keys(here, run, nullptr, nullptr, true);
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
    Window& own = own_keys_[run.chunk];
    return keys_of(problem, own.blocks[0], own.blocks[1], own.begin, run.batch,
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
                    run.value_sums, false);
    });
  }

  // The sums as gradients: a pass over no rows.
  void write_keys(std::vector<GivenBack>& results) {
    for (std::size_t n = 0; n < 2; ++n) {
      Window& own = own_keys_[n];
      d_k_[n] = own.blocks[0].like(own.blocks[0].positions());
      d_v_[n] = own.blocks[1].like(own.blocks[1].positions());
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
      head.d_k = at(d_k_[run.chunk]);
      head.d_v = at(d_v_[run.chunk]);
      head.d_k_stride = d_k_[run.chunk].view().strides[2];
      head.d_v_stride = d_v_[run.chunk].view().strides[2];
      head.d_key_sums = run.key_sums();
      head.d_value_sums = run.value_sums;
      kernels::backward_keys(
          head, run.keys.begin, run.keys.end,
          HeadRows::scratch(inputs_.k.shape[3], inputs_.v.shape[3]));
    }
    if (!gradients_.k.is_null()) {
      results.emplace_back(ranks_, keys_, d_k_, gradients_.k);
    }
    if (!gradients_.v.is_null()) {
      results.emplace_back(ranks_, keys_, d_v_, gradients_.v);
    }
  }

  Communicator& ranks_;
  const UntypedBackwardInputs& inputs_;
  const UntypedGradients& gradients_;
  const SequenceLengths lengths_;
  const AttentionOptions& options_;
  const bool wants_rows_, wants_keys_;
  const Chunks queries_, keys_;
  std::vector<Needs> key_needs_, query_needs_;  // by rank
  std::array<Window, 2> own_keys_;              // keys and values, by chunk
  std::array<QueryChunk, 2> chunks_;
  std::array<std::vector<HeadRows>, 2> rows_;  // by chunk
  std::vector<KeyRun> runs_;                   // by chunk
  std::array<Block, 2> d_k_, d_v_;             // by chunk, on their way back
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
