// SPDX-License-Identifier: Apache-2.0
#include "dist/query_chunks.h"

#include <span>
#include <vector>

namespace regard::dist {
namespace {

// The chunks that a rank holds, and those that it works on. Both in the order
// of the sequence, so that messages between two ranks have one order, too.
std::array<int, 2> held_by(int rank) { return {2 * rank, 2 * rank + 1}; }
std::array<int, 2> worked_on_by(int rank, int ranks) {
  return {rank, 2 * ranks - 1 - rank};
}
int holder_of(int chunk) { return chunk / 2; }
int worker_of(int chunk, int ranks) {
  return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

Part part_of_chunk(int chunk, std::int64_t q_len, int ranks) {
  return part_of(q_len, chunk, 2 * ranks);
}

// The same, counted from the first query of the rank that holds it.
Part place_of(int chunk, std::int64_t q_len, int ranks) {
  const Part part = part_of_chunk(chunk, q_len, ranks);
  const std::int64_t first = part_of(q_len, holder_of(chunk), ranks).begin;
  return {part.begin - first, part.end - first};
}

}  // namespace

QueryChunks send_queries(Communicator& ranks, std::int64_t q_len,
                         const ConstUntypedView<4>& own_q, std::int64_t d_v) {
  const int rank = ranks.rank(), size = ranks.size();
  const std::int64_t batch = own_q.shape[0], heads = own_q.shape[1];
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  std::array<Block, 2> leaving;
  for (std::size_t n = 0; n < 2; ++n) {
    const int chunk = held_by(rank)[n];
    leaving[n] = packed(positions_of(own_q, place_of(chunk, q_len, size)));
    const int worker = worker_of(chunk, size);
    if (worker != rank) sends.push_back({worker, leaving[n].bytes()});
  }
  QueryChunks chunks;
  for (std::size_t n = 0; n < 2; ++n) {
    const int chunk = worked_on_by(rank, size)[n];
    QueryChunk& mine = chunks[n];
    mine.queries = part_of_chunk(chunk, q_len, size);
    const std::int64_t count = mine.queries.size();
    mine.out = Block(own_q.dtype, count, batch, heads, d_v);
    mine.rows = Tensor(Shape{batch, heads, count});
    if (holder_of(chunk) == rank) {
      mine.q = leaving[static_cast<std::size_t>(chunk % 2)];
      continue;
    }
    mine.q = Block(own_q.dtype, count, batch, heads, own_q.shape[3]);
    receives.push_back({holder_of(chunk), mine.q.bytes()});
  }
  ranks.start(sends, receives);
  ranks.finish();
  return chunks;
}

void return_results(Communicator& ranks, std::int64_t q_len,
                    QueryChunks& chunks, const UntypedView<4>& own_out,
                    const TensorView<float, 3>& log_sum_exp) {
  const int rank = ranks.rank(), size = ranks.size();
  const bool wants_rows = log_sum_exp.data() != nullptr;
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  // Results of the own queries, by held chunk.
  std::array<QueryChunk*, 2> results{};
  for (std::size_t n = 0; n < 2; ++n) {
    const int chunk = worked_on_by(rank, size)[n];
    QueryChunk& mine = chunks[n];
    if (holder_of(chunk) == rank) {
      results[static_cast<std::size_t>(chunk % 2)] = &mine;
      continue;
    }
    sends.push_back({holder_of(chunk), mine.out.bytes()});
    if (!wants_rows) continue;
    sends.push_back(
        {holder_of(chunk), std::as_bytes(mine.rows.values<float>())});
  }
  QueryChunks arriving;
  for (std::size_t n = 0; n < 2; ++n) {
    if (results[n] != nullptr) continue;
    const int chunk = held_by(rank)[n];
    const int worker = worker_of(chunk, size);
    const std::int64_t count = part_of_chunk(chunk, q_len, size).size();
    arriving[n].out = Block(own_out.dtype, count, own_out.shape[0],
                            own_out.shape[1], own_out.shape[3]);
    arriving[n].rows = Tensor(Shape{own_out.shape[0], own_out.shape[1], count});
    results[n] = &arriving[n];
    receives.push_back({worker, arriving[n].out.bytes()});
    if (!wants_rows) continue;
    receives.push_back(
        {worker, std::as_writable_bytes(arriving[n].rows.values<float>())});
  }
  ranks.start(sends, receives);
  ranks.finish();
  for (std::size_t n = 0; n < 2; ++n) {
    const Part at = place_of(held_by(rank)[n], q_len, size);
    copy(results[n]->out.const_view(), positions_of(own_out, at));
    if (!wants_rows) continue;
    copy(as_const(as_column(results[n]->rows.view<float, 3>())),
         positions_of(as_column(log_sum_exp), at));
  }
}

}  // namespace regard::dist
