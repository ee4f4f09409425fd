// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/text_search.h"

#include <algorithm>
#include <cmath>

#include "ops/packed_weights.h"
#include "ops/product.h"
#include "regard/core/error.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {
namespace {

float inverse_length(const float* x, std::int64_t n) {
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    squares += static_cast<double>(x[i]) * x[i];
  }
  return squares == 0 ? 0.0f : static_cast<float>(1 / std::sqrt(squares));
}

bool is_better(const SearchHit& a, const SearchHit& b) {
  const bool a_is_nan = std::isnan(a.similarity);
  if (a_is_nan != std::isnan(b.similarity)) return !a_is_nan;
  if (!a_is_nan && a.similarity != b.similarity) {
    return a.similarity > b.similarity;
  }
  return a.row < b.row;
}

// The best so far, the worst of them in front.
class Best {
 public:
  explicit Best(std::int64_t most) : most_(static_cast<std::size_t>(most)) {}

  void add(const SearchHit& hit) {
    if (hits_.size() == most_) {
      if (!is_better(hit, hits_.front())) return;
      std::pop_heap(hits_.begin(), hits_.end(), is_better);
      hits_.pop_back();
    }
    hits_.push_back(hit);
    std::push_heap(hits_.begin(), hits_.end(), is_better);
  }
  std::vector<SearchHit> take() {
    std::sort(hits_.begin(), hits_.end(), is_better);
    return std::move(hits_);
  }

 private:
  std::size_t most_;
  std::vector<SearchHit> hits_;
};

}  // namespace

std::vector<std::vector<SearchHit>> nearest(TensorView<const float, 2> corpus,
                                            TensorView<const float, 2> queries,
                                            const SearchOptions& options) {
  require(corpus.extent(1) == queries.extent(1), "nearest",
          "queries must be as wide as the corpus; they are ", queries.extent(1),
          " and ", corpus.extent(1));
  require(options.top > 0, "nearest", "top must be positive; got ",
          options.top);
  // Rows whose similarities are in memory at a time.
  constexpr std::int64_t kRows = 4096;
  const std::int64_t rows = corpus.extent(0), width = corpus.extent(1);
  const std::int64_t count = queries.extent(0);
  if (count == 0) return {};
  const auto weight = ops::PackedWeights::pack(queries);
  std::vector<float> query_factors;
  for (std::int64_t q = 0; q < count; ++q) {
    query_factors.push_back(inverse_length(queries.at(q), width));
  }
  std::vector<Best> best(
      static_cast<std::size_t>(count),
      Best(std::min(options.top, std::max<std::int64_t>(rows, 1))));
  Tensor products({std::min(kRows, rows), count});
  for (std::int64_t begin = 0; begin < rows; begin += kRows) {
    const std::int64_t n = std::min(kRows, rows - begin);
    const ops::Rows y(products.values<float>().data(), {n, count});
    ops::multiply(
        {.x = ops::columns(corpus.at(begin), n, width, corpus.stride(0)),
         .weight = &weight,
         .y = y},
        options.threads);
    for (std::int64_t r = 0; r < n; ++r) {
      const float factor = inverse_length(corpus.at(begin + r), width);
      for (std::int64_t q = 0; q < count; ++q) {
        const auto place = static_cast<std::size_t>(q);
        best[place].add(
            {begin + r, y.at(r)[q] * factor * query_factors[place]});
      }
    }
  }
  std::vector<std::vector<SearchHit>> hits;
  for (Best& of_query : best) hits.push_back(of_query.take());
  return hits;
}

}  // namespace regard::tasks
