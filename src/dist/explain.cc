// SPDX-License-Identifier: Apache-2.0
#include "regard/dist/explain.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "core/scaled.h"
#include "dist/by_heads.h"
#include "dist/by_sequence.h"
#include "dist/chunks.h"
#include "dist/seen.h"
#include "dist/stream.h"
#include "kernels/attention_forward.h"
#include "regard/core/error.h"

namespace regard::dist {
namespace {

using detail::scaled;

constexpr const char* kWhere = "dist::explain";

// Elements that belong to one position, of all batch entries and heads.
struct Widths {
  explicit Widths(const AttentionShape& s)
      : element(static_cast<std::int64_t>(size_of(s.dtype))),
        q(s.batch * s.heads * s.d_k * element),
        k(s.batch * s.kv_heads * s.d_k * element),
        v(s.batch * s.kv_heads * s.d_v * element),
        out(s.batch * s.heads * s.d_v * element),
        row(s.batch * s.heads * 4) {}
  std::int64_t element, q, k, v, out;
  std::int64_t row;  // a float a row
};

// A message to each other rank, of a size that does not depend on lengths.
void add_gather(SpreadCall& call, std::int64_t bytes) {
  const auto others = std::ssize(call.sent) - 1;
  for (Traffic& traffic : call.sent) traffic.bytes += others * bytes;
}

// ---- by heads ----

// Queries, or keys: own positions to the ranks that have the heads, and back.
// Travelling while ranks compute: all but the first heads, and the last
// results.
void add_heads(SpreadCall& call, const AttentionShape& s, std::int64_t length,
               std::int64_t to_heads, std::int64_t to_positions) {
  const int ranks = static_cast<int>(call.sent.size());
  const HeadGroups groups(s.kv_heads, ranks, s.q_len);
  for (int i = 0; i < ranks; ++i) {
    Traffic& traffic = call.sent[static_cast<std::size_t>(i)];
    const std::int64_t own = part_of(length, i, ranks).size();
    for (int g = 0; g < groups.count(); ++g) {
      std::int64_t others = 0;  // heads
      for (int j = 0; j < ranks; ++j) {
        if (j != i) others += groups.kv_heads(j, g).size();
      }
      const std::int64_t brought = own * others * to_heads / s.kv_heads;
      const std::int64_t given = (length - own) * groups.kv_heads(i, g).size() *
                                 to_positions / s.kv_heads;
      traffic.bytes += brought + given;
      if (g > 0) traffic.hidden_bytes += brought;
      if (g + 1 < groups.count()) traffic.hidden_bytes += given;
    }
  }
}

void explain_heads(SpreadExplanation& e, const AttentionOptions& options) {
  const AttentionShape& s = e.shape;
  const Widths w(s);
  const bool rows = options.log_sum_exp.data() != nullptr;
  add_heads(e.forward, s, s.q_len, w.q, w.out + (rows ? w.row : 0));
  add_heads(e.forward, s, s.kv_len, w.k + w.v, 0);
  add_heads(e.backward, s, s.q_len, w.q + 2 * w.out + w.row, w.q);
  add_heads(e.backward, s, s.kv_len, w.k + w.v, w.k + w.v);
}

// ---- by sequence ----

// From holders to workers, and back.
void add_chunks(SpreadCall& call, const Chunks& chunks, std::int64_t to_worker,
                std::int64_t to_holder) {
  for (int holder = 0; holder < chunks.ranks(); ++holder) {
    const Part held = part_of(chunks.length, holder, chunks.ranks());
    for (std::size_t c = 0; c < chunks.parts.size(); ++c) {
      const int worker = chunks.worker(c);
      if (worker == holder) continue;
      const std::int64_t both = intersection(held, chunks.parts[c]).size();
      call.sent[static_cast<std::size_t>(holder)].bytes += both * to_worker;
      call.sent[static_cast<std::size_t>(worker)].bytes += both * to_holder;
    }
  }
}

void add_stream(SpreadCall& call, const std::vector<Travel::Piece>& pieces,
                const std::vector<Needs>& needs, std::int64_t width) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Traffic& traffic = call.sent[static_cast<std::size_t>(pieces[i].owner)];
    for (std::size_t to = 0; to < needs.size(); ++to) {
      if (static_cast<int>(to) == pieces[i].owner) continue;
      for (const Part& need : needs[to]) {
        const std::int64_t bytes =
            intersection(pieces[i].positions, need).size() * width;
        traffic.bytes += bytes;
        if (i > 0) traffic.hidden_bytes += bytes;
      }
    }
  }
}

// The share of pairs whose gradients take five products, not seven: a rank has
// both chunks, but for an early query and a late key.
double own_share(const detail::Problem<float>& p,
                 const detail::EntryMasks<float>& masks, const Chunks& queries,
                 const Chunks& keys) {
  double own = 0, all = 0;
  for (int i = 0; i < queries.ranks(); ++i) {
    const auto key_chunks = keys.of(i);
    for (std::size_t n = 0; n < 2; ++n) {
      for_seen(p, masks, queries.of(i)[n], [&](std::int64_t, Part seen) {
        all += static_cast<double>(seen.size());
        for (std::size_t m = 0; m <= n; ++m) {
          own += static_cast<double>(intersection(seen, key_chunks[m]).size());
        }
      });
    }
  }
  return all == 0 ? 0 : own / all;
}

void explain_sequence(SpreadExplanation& e, const AttentionOptions& options,
                      double pairs) {
  const AttentionShape& s = e.shape;
  const Widths w(s);
  const detail::Problem<float> p(
      detail::hollow_view(s.dtype, {s.batch, s.heads, s.q_len, s.d_k}),
      detail::hollow_view(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.d_k}),
      detail::hollow_view(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.d_v}),
      options, kWhere);
  const detail::EntryMasks<float> masks(p);
  const bool rows = options.log_sum_exp.data() != nullptr;
  const auto needs = [&](const Chunks& queries, std::int64_t unit) {
    std::vector<Needs> of_ranks;
    for (int i = 0; i < e.ranks; ++i) {
      const auto [early, late] = queries.of(i);
      of_ranks.push_back(needs_of(keys_seen_by(p, masks, early),
                                  keys_seen_by(p, masks, late), unit));
    }
    return of_ranks;
  };
  const Chunks of_forward(s.q_len, e.ranks, 1);
  add_chunks(e.forward, of_forward, w.q, w.out + (rows ? w.row : 0));
  add_stream(e.forward, held_pieces(s.kv_len, e.ranks, kernels::kSplitKeys),
             needs(of_forward, kernels::kSplitKeys), w.k + w.v);
  add_gather(e.forward, sizeof(Needs) + 1);  // and whether to go again

  const Chunks queries(s.q_len, e.ranks, kernels::kGroupRows);
  const Chunks keys(s.kv_len, e.ranks, kernels::kKeyBlock);
  std::vector<Part> seen_by(keys.parts.size(), Part{0, 0});
  std::vector<Needs> of_queries;
  std::vector<Travel::Piece> query_pieces, key_pieces;
  for (std::size_t c = 0; c < keys.parts.size(); ++c) {
    add_queries_that_see(p, masks, queries.parts[c], keys.parts, seen_by);
    add_pieces(query_pieces, queries.worker(c), queries.parts[c],
               kernels::kGroupRows);
    add_pieces(key_pieces, keys.worker(c), keys.parts[c], kernels::kKeyBlock);
  }
  for (int i = 0; i < e.ranks; ++i) {
    const auto [early, late] = keys.numbers(i);
    of_queries.push_back(
        needs_of(seen_by[early], seen_by[late], kernels::kGroupRows));
  }
  add_chunks(e.backward, queries, w.q + 2 * w.out + w.row, w.q);
  add_chunks(e.backward, keys, w.k + w.v, w.k + w.v);
  add_stream(e.backward, key_pieces, needs(queries, kernels::kKeyBlock),
             w.k + w.v);
  add_stream(e.backward, query_pieces, of_queries, w.q + w.out + 2 * w.row);
  add_gather(e.backward, static_cast<std::int64_t>(
                             sizeof(Needs) + sizeof(Part) * seen_by.size()));
  e.backward.flops -= own_share(p, masks, queries, keys) * pairs * 2 *
                      static_cast<double>(s.d_k + s.d_v);
}

void describe(std::ostringstream& text, const char* name, const SpreadCall& c) {
  const auto most = std::max_element(
      c.sent.begin(), c.sent.end(),
      [](const Traffic& a, const Traffic& b) { return a.bytes < b.bytes; });
  const auto ranks = static_cast<double>(c.sent.size());
  const auto bytes = static_cast<double>(c.bytes());
  const auto hidden = static_cast<double>(c.hidden_bytes());
  text << name << scaled(c.flops / ranks, "FLOP")
       << " for each rank, which sends " << scaled(bytes / ranks, "B")
       << " (at most " << scaled(static_cast<double>(most->bytes), "B")
       << ")\n";
  text << "  overlap  ";
  if (c.hidden_bytes() == 0) {
    text << "none: ranks wait for all of it\n";
    return;
  }
  char share[32];
  std::snprintf(share, sizeof share, "%.1f %%", 100 * hidden / bytes);
  text << share << " of it travels while ranks compute; at 100 GFLOP/s for "
       << "each rank nobody waits for that from "
       << scaled(8 * hidden / (c.flops / 100e9), "bit/s") << " on\n";
}

}  // namespace

std::int64_t SpreadCall::bytes() const {
  std::int64_t sum = 0;
  for (const Traffic& traffic : sent) sum += traffic.bytes;
  return sum;
}

std::int64_t SpreadCall::hidden_bytes() const {
  std::int64_t sum = 0;
  for (const Traffic& traffic : sent) sum += traffic.hidden_bytes;
  return sum;
}

SpreadExplanation explain(const AttentionShape& shape,
                          const AttentionOptions& options, int ranks) {
  require(ranks >= 1, kWhere, "there must be a rank; there are ", ranks);
  require(shape.dtype != DType::kFloat64, kWhere,
          "attention over ranks is not computed in float64");
  const Explanation alone = regard::explain(shape, options);
  SpreadExplanation e{.shape = shape, .ranks = ranks};
  e.way = way_of(shape.kv_heads, ranks, options);
  e.reason = options.dropout.rate > 0 ? "dropout is drawn by the number of the "
                                        "head"
             : shape.kv_heads < ranks ? "there are fewer key-value heads than "
                                        "ranks"
                                      : "there are as many key-value heads as "
                                        "ranks, or more";
  e.forward.sent.resize(static_cast<std::size_t>(ranks));
  e.backward.sent = e.forward.sent;
  const bool by_sequence = e.way == Way::kBySequence && ranks > 1;
  const auto pairs = static_cast<double>(alone.visible_pairs);
  const auto d_k = static_cast<double>(shape.d_k);
  const auto d_v = static_cast<double>(shape.d_v);
  e.forward.flops = alone.flops;
  e.backward.flops =
      2 * pairs * (by_sequence ? 4 * d_k + 3 * d_v : 3 * d_k + 2 * d_v);
  if (ranks == 1) return e;
  // Lengths, which all tell each other.
  for (SpreadCall* call : {&e.forward, &e.backward}) add_gather(*call, 16);
  if (!by_sequence) {
    explain_heads(e, options);
    return e;
  }
  check_by_sequence(options, kWhere);
  explain_sequence(e, options, pairs);
  return e;
}

std::string to_string(const SpreadExplanation& e) {
  std::ostringstream text;
  if (e.ranks == 1) {
    text << "ranks      1: nothing is sent\n";
    return text.str();
  }
  text << "ranks      " << e.ranks << ", by "
       << (e.way == Way::kByHeads ? "heads" : "sequence") << ": " << e.reason
       << "\n";
  describe(text, "forward    ", e.forward);
  describe(text, "backward   ", e.backward);
  return text.str();
}

}  // namespace regard::dist
