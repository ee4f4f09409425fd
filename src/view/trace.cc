// SPDX-License-Identifier: Apache-2.0
#include "regard/view/trace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/gemm.h"
#include "regard/core/error.h"
#include "regard/core/threads.h"

namespace regard::view {
namespace {

constexpr float kMostCode = 65535.0f;

// Half precision may round a sum of shares a little above 1.
constexpr float kMostWeight = 1.001f;

// round(most * weight), without the call that std::lround is.
template <typename Code>
Code rounded(float weight, float most) {
  return static_cast<Code>(std::min(weight, 1.0f) * most + 0.5f);
}

std::uint16_t code_of(float weight) {
  return rounded<std::uint16_t>(weight, kMostCode);
}

std::size_t area(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

// Sums over the rows of one head.
class Sums {
 public:
  explicit Sums(bool self) : self_(self) {}

  // One row of weights, whose query stands at `row`.
  void add(const float* weights, std::int64_t columns, std::int64_t row) {
    double total = 0;
    double entropy = 0;
    double distance = 0;
    for (std::int64_t key = 0; key < columns; ++key) {
      const float w = weights[key];
      if (w == 0) continue;
      total += w;
      entropy -= w * std::log(w);
      distance += w * static_cast<float>(std::abs(row - key));
    }
    if (total == 0) return;
    ++rows_;
    entropy_ += entropy;
    first_ += weights[0];
    if (!self_) return;
    distance_ += distance;
    same_ += weights[row];
    if (row > 0) previous_ += weights[row - 1];
  }

  HeadStatistics means() const {
    const double rows = rows_ == 0 ? 1 : static_cast<double>(rows_);
    HeadStatistics result;
    // A weight that rounding left above 1 has a little less than none.
    result.entropy = std::max(entropy_ / rows, 0.0);
    result.first = first_ / rows;
    if (self_) {
      result.distance = distance_ / rows;
      result.previous = previous_ / rows;
      result.same = same_ / rows;
    }
    return result;
  }

 private:
  bool self_;
  std::int64_t rows_ = 0;
  double entropy_ = 0, first_ = 0, distance_ = 0, previous_ = 0, same_ = 0;
};

// Which of `cells` each element falls in: each holds as many as the next.
std::vector<std::int64_t> cells_of(std::int64_t count, std::int64_t cells) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(i * cells / count);
  return result;
}

}  // namespace

Section::Section(SectionConfig config, std::int64_t rows, std::int64_t columns)
    : config_(std::move(config)), rows_(rows), columns_(columns) {
  constexpr const char* kWhere = "view::Section";
  require(config_.heads > 0 && rows > 0 && columns > 0, kWhere,
          "there must be heads, queries and keys; '", config_.name, "' has ",
          config_.heads, ", ", rows, " and ", columns);
  require(!config_.self || rows == columns, kWhere,
          "self attention must have as many queries as keys; '", config_.name,
          "' has ", rows, " and ", columns);
  thumbnails_.rows = std::min(rows, Thumbnails::kMost);
  thumbnails_.columns = std::min(columns, Thumbnails::kMost);
}

void Section::check_weights(TensorView<const float, 3> weights) const {
  constexpr const char* kWhere = "view::Section";
  const std::array<std::int64_t, 3> shape{config_.heads, rows_, columns_};
  require(weights.shape() == shape, kWhere, "layer ", layers_, " of '",
          config_.name, "' must have weights of ", ShapeText{shape},
          "; they are ", ShapeText{weights.shape()});
  for (std::int64_t head = 0; head < config_.heads; ++head) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const float* const w = weights.at(head, row);
      // NaN fails every comparison, so it is found too.
      const float* const bad = std::find_if_not(
          w, w + columns_, [](float x) { return x >= 0 && x <= kMostWeight; });
      require(bad == w + columns_, kWhere,
              "weights must be numbers from 0 to 1; '", config_.name,
              "' has at layer ", layers_, ", head ", head, ", query ", row,
              ", key ", bad - w, ": ", bad == w + columns_ ? 0.0f : *bad,
              " (dropout scales weights: was the model in evaluation mode?)");
    }
  }
}

void Section::add_layer(TensorView<const float, 3> weights) {
  check_weights(weights);
  const auto heads = static_cast<std::size_t>(config_.heads);
  const std::size_t size = area(rows_, columns_);
  const std::size_t cells = area(thumbnails_.rows, thumbnails_.columns);
  const std::size_t first = static_cast<std::size_t>(layers_) * heads;
  codes_.resize((first + heads) * size);
  thumbnails_.cells.resize((first + heads) * cells);
  statistics_.resize(first + heads);
  std::vector<char> causal(heads, 1);
  parallel_for({}, config_.heads, [&](std::int64_t head) {
    const std::size_t at = first + static_cast<std::size_t>(head);
    bool below = true;
    add_head({weights.at(head),
              {rows_, columns_},
              {weights.stride(1), weights.stride(2)}},
             codes_.data() + at * size, thumbnails_.cells.data() + at * cells,
             statistics_[at], below);
    causal[static_cast<std::size_t>(head)] = below;
  });
  causal_ =
      causal_ && std::find(causal.begin(), causal.end(), 0) == causal.end();
  ++layers_;
}

void Section::add_head(TensorView<const float, 2> weights, std::uint16_t* codes,
                       std::uint8_t* cells, HeadStatistics& statistics,
                       bool& causal) const {
  const auto row_cells = cells_of(rows_, thumbnails_.rows);
  const auto column_cells = cells_of(columns_, thumbnails_.columns);
  std::vector<float> largest(area(thumbnails_.rows, thumbnails_.columns));
  Sums sums(config_.self);
  for (std::int64_t row = 0; row < rows_; ++row) {
    const float* const w = weights.at(row);
    float* const line =
        largest.data() +
        row_cells[static_cast<std::size_t>(row)] * thumbnails_.columns;
    for (std::int64_t key = 0; key < columns_; ++key) {
      codes[row * columns_ + key] = code_of(w[key]);
      float& cell = line[column_cells[static_cast<std::size_t>(key)]];
      cell = std::max(cell, w[key]);
      if (key > row && w[key] != 0) causal = false;
    }
    sums.add(w, columns_, row);
  }
  statistics = sums.means();
  std::transform(largest.begin(), largest.end(), cells,
                 [](float w) { return rounded<std::uint8_t>(w, 255.0f); });
}

std::size_t Section::place(std::int64_t layer, std::int64_t head) const {
  require(layer >= 0 && layer < layers_ && head >= 0 && head < config_.heads,
          "view::Section", "'", config_.name, "' has layers 0 .. ", layers_ - 1,
          " and heads 0 .. ", config_.heads - 1, "; got layer ", layer,
          ", head ", head);
  return static_cast<std::size_t>(layer * config_.heads + head);
}

std::span<const std::uint16_t> Section::codes(std::int64_t layer,
                                              std::int64_t head) const {
  const std::size_t size = area(rows_, columns_);
  return std::span(codes_).subspan(place(layer, head) * size, size);
}

const HeadStatistics& Section::statistics(std::int64_t layer,
                                          std::int64_t head) const {
  return statistics_[place(layer, head)];
}

std::vector<std::uint16_t> Section::rollout() const {
  require(has_rollout(), "view::Section", "a rollout needs self attention; '",
          config_.name, "' is not");
  const std::int64_t n = rows_;
  const std::size_t size = area(n, n);
  const float share = 0.5f / (kMostCode * static_cast<float>(config_.heads));
  std::vector<float> layer(size);
  std::vector<float> so_far(size);
  std::vector<float> next(size);
  std::vector<float> packed(
      static_cast<std::size_t>(kernels::packed_columns_size(n, n)));
  for (std::int64_t l = 0; l < layers_; ++l) {
    std::fill(layer.begin(), layer.end(), 0.0f);
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      const auto from = codes(l, head);
      for (std::size_t i = 0; i < size; ++i) {
        layer[i] += share * static_cast<float>(from[i]);
      }
    }
    for (std::int64_t i = 0; i < n; ++i) layer[area(i, n + 1)] += 0.5f;
    if (l == 0) {
      so_far = layer;
      continue;
    }
    kernels::pack_columns(so_far.data(), n, n, n, packed.data());
    const std::int64_t block = kernels::kGemmBlockRows;
    parallel_for({}, (n + block - 1) / block, [&](std::int64_t task) {
      const std::int64_t begin = task * block;
      kernels::gemm({.m = std::min(block, n - begin),
                     .n = n,
                     .k = n,
                     .a = layer.data() + begin * n,
                     .a_stride = n,
                     .b = packed.data(),
                     .c = next.data() + begin * n,
                     .c_stride = n});
    });
    std::swap(so_far, next);
  }
  std::vector<std::uint16_t> result(size);
  std::transform(so_far.begin(), so_far.end(), result.begin(), code_of);
  return result;
}

std::size_t Section::bytes() const {
  return codes_.size() * sizeof(codes_[0]) + thumbnails_.cells.size() +
         statistics_.size() * sizeof(statistics_[0]);
}

std::size_t Trace::add_axis(Axis axis) {
  axes_.push_back(std::move(axis));
  return axes_.size() - 1;
}

Section& Trace::add_section(SectionConfig config) {
  require(config.queries < axes_.size() && config.keys < axes_.size(),
          "view::Trace", "'", config.name, "' must have axes in 0 .. ",
          axes_.size() - 1, "; they are ", config.queries, " and ",
          config.keys);
  const auto rows =
      static_cast<std::int64_t>(axes_[config.queries].tokens.size());
  const auto columns =
      static_cast<std::int64_t>(axes_[config.keys].tokens.size());
  return sections_.emplace_back(std::move(config), rows, columns);
}

const Section& Trace::section(std::int64_t index) const {
  require(index >= 0 && index < static_cast<std::int64_t>(sections_.size()),
          "view::Trace", "there are sections 0 .. ", sections_.size() - 1,
          "; got ", index);
  return sections_[static_cast<std::size_t>(index)];
}

std::size_t Trace::bytes() const {
  std::size_t result = source.size() + target.size();
  for (const Axis& axis : axes_) {
    for (const std::string& token : axis.tokens) {
      result += token.size() + sizeof(token);
    }
  }
  for (const Section& section : sections_) result += section.bytes();
  return result;
}

std::string little_endian(std::span<const std::uint16_t> codes) {
  std::string bytes(codes.size() * 2, '\0');
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(bytes.data(), codes.data(), bytes.size());
  } else {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      bytes[2 * i] = static_cast<char>(codes[i] & 255);
      bytes[2 * i + 1] = static_cast<char>(codes[i] >> 8);
    }
  }
  return bytes;
}

}  // namespace regard::view
