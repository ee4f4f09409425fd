// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "autograd/element_dropout.h"
#include "ops/rows.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {
namespace {

using ops::over_row_blocks;

constexpr const char* kWhere = "autograd::embedding";
constexpr std::int64_t kBlock = 64;

struct EmbeddingStep {
  Tape* tape = nullptr;
  Variable table, positions, out;
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> places;
  float scale = 1.0f;
  kernels::RowDropout dropout;

  void operator()() const {
    const std::shared_ptr<float> d_out = tape->take_gradient(out);
    if (d_out == nullptr) return;
    const std::int64_t rows = out.rows();
    const std::int64_t width = out.columns();
    if (drops(dropout)) {
      over_row_blocks(tape->threads(), rows, kBlock,
                      [&](std::int64_t begin, std::int64_t end) {
                        float* const at = d_out.get() + begin * width;
                        kernels::dropout_add({.rows = end - begin,
                                              .width = width,
                                              .first_row = begin,
                                              .x = at,
                                              .y = at},
                                             dropout);
                      });
    }
    const auto scatter = [&](const Variable& to, float factor,
                             const auto& index) {
      float* const sum = tape->gradient_sum(to);
      if (sum == nullptr) return;
      // Threads share the columns, so that each row of the table gets its
      // tokens in order.
      over_row_blocks(
          tape->threads(), width, kBlock,
          [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = 0; r < rows; ++r) {
              kernels::add_scaled(
                  d_out.get() + r * width + begin, factor, end - begin,
                  sum + index[static_cast<std::size_t>(r)] * width + begin);
            }
          });
    };
    scatter(table, scale, tokens);
    if (positions.needs_gradient()) scatter(positions, 1.0f, places);
  }
};

}  // namespace

Variable embedding(Tape& tape, const Variable& table,
                   std::span<const std::int32_t> tokens,
                   const EmbeddingOptions& options) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const std::int64_t width = table.columns();
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < table.rows(), kWhere,
            "a token must lie in 0 .. ", table.rows() - 1, "; got ", token);
  }
  std::vector<std::int64_t> places;
  if (!options.positions.is_null()) {
    require(options.positions.columns() == width, kWhere,
            "positions must have the table's ", width, " columns; they have ",
            options.positions.columns());
    places = ops::places_of(options.offsets);
    require(static_cast<std::int64_t>(places.size()) == rows, kWhere,
            "offsets must cover the tokens, which are ", rows, "; they cover ",
            places.size());
    const auto last = std::max_element(places.begin(), places.end());
    require(last == places.end() || *last < options.positions.rows(), kWhere,
            "a sentence must have at most ", options.positions.rows(),
            " tokens, as there are positions; one has ",
            last == places.end() ? 0 : *last + 1);
  }
  const kernels::RowDropout dropout = row_dropout(options.dropout, kWhere);
  Variable out =
      tape.result(rows, width,
                  table.needs_gradient() || options.positions.needs_gradient());
  float* const to = out.mutable_data();
  over_row_blocks(
      tape.threads(), rows, kBlock, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const auto i = static_cast<std::size_t>(r);
          kernels::scale_add(table.data() + tokens[i] * width, options.scale,
                             places.empty()
                                 ? nullptr
                                 : options.positions.data() + places[i] * width,
                             width, to + r * width);
        }
        if (!drops(dropout)) return;
        kernels::dropout_add({.rows = end - begin,
                              .width = width,
                              .first_row = begin,
                              .x = to + begin * width,
                              .y = to + begin * width},
                             dropout);
      });
  if (!out.needs_gradient()) return out;
  tape.record(EmbeddingStep{&tape, table, options.positions,
                            out.without_values(),
                            std::vector(tokens.begin(), tokens.end()),
                            std::move(places), options.scale, dropout});
  return out;
}

}  // namespace regard::autograd
