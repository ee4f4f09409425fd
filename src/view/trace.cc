// SPDX-License-Identifier: Apache-2.0
#include "regard/view/trace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/gemm.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
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
  Sums(bool self, std::int64_t columns)
      : self_(self),
        sums_(static_cast<std::size_t>(columns)),
        preferred_(static_cast<std::size_t>(columns)) {}

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
      const auto k = static_cast<std::size_t>(key);
      sums_[k] += w;
      preferred_[k] += w * static_cast<double>(row + 1);
      if (std::abs(row - key) <= 1) near_ += w;
    }
    totals_.push_back(total);
    if (total == 0) return;
    ++rows_;
    entropy_ += entropy;
    first_ += weights[0];
    if (!self_) return;
    distance_ += distance;
    same_ += weights[row];
    if (row > 0) previous_ += weights[row - 1];
  }

  // `causal`: row i sees the keys 0 .. i.
  HeadStatistics means(bool causal) const {
    const double rows = rows_ == 0 ? 1 : static_cast<double>(rows_);
    HeadStatistics result;
    if (sums_.size() > 1) {
      const double near = self_ ? near_ / rows : 0;
      result.telling = std::max(information(causal), 0.0) / rows /
                       std::log(static_cast<double>(sums_.size())) * (1 - near);
    }
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
  // The sum over rows of sum_k w ln(w / p), p the preferences among the keys
  // that the row sees: -entropy - sum_k w ln(preferred) + ln(their sum).
  double information(bool causal) const {
    double result = -entropy_;
    double seen = 0;  // sum of the preferences up to a key
    const auto count = static_cast<double>(totals_.size());
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      const double preferred =
          causal ? preferred_[k] / (count - static_cast<double>(k)) : sums_[k];
      if (preferred > 0) result -= sums_[k] * std::log(preferred);
      seen += preferred;
      if (causal && seen > 0) result += totals_[k] * std::log(seen);
    }
    if (!causal && seen > 0) {
      for (const double total : totals_) result += total * std::log(seen);
    }
    return result;
  }

  bool self_;
  std::int64_t rows_ = 0;
  double entropy_ = 0, first_ = 0, distance_ = 0, previous_ = 0, same_ = 0;
  double near_ = 0;
  std::vector<double> totals_;     // [rows]
  std::vector<double> sums_;       // [columns], of the weights
  std::vector<double> preferred_;  // the same, each times what its row sees
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
  Sums sums(config_.self, columns_);
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
  statistics = sums.means(config_.self && causal);
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

void Section::add_vectors(TensorView<const float, 3> queries,
                          TensorView<const float, 3> keys, double scale) {
  constexpr const char* kWhere = "view::Section";
  const std::int64_t dim = queries.extent(2);
  const std::array<std::int64_t, 3> q{config_.heads, rows_, dim};
  const std::array<std::int64_t, 3> k{config_.heads, columns_, dim};
  require(dim > 0 && queries.shape() == q && keys.shape() == k, kWhere,
          "queries and keys of '", config_.name, "' must be [", config_.heads,
          ", ", rows_, ", dim] and [", config_.heads, ", ", columns_,
          ", dim]; they are ", ShapeText{queries.shape()}, " and ",
          ShapeText{keys.shape()});
  const std::size_t head_size = area(rows_ + columns_, dim);
  const std::size_t layer_size =
      static_cast<std::size_t>(config_.heads) * head_size;
  require(layers_ > 0 &&
              vectors_.size() ==
                  static_cast<std::size_t>(layers_ - 1) * layer_size &&
              (layers_ == 1 || (dim == vector_dim_ && scale == vector_scale_)),
          kWhere, "each layer of '", config_.name,
          "' must have queries and keys, of one size and scale; layer ",
          layers_ - 1, " comes after others");
  vector_dim_ = dim;
  vector_scale_ = scale;
  for (std::int64_t head = 0; head < config_.heads; ++head) {
    for (const auto& part : {queries, keys}) {
      for (std::int64_t row = 0; row < part.extent(1); ++row) {
        const float* const from = part.at(head, row);
        std::transform(from, from + dim, std::back_inserter(vectors_),
                       [](float x) { return Float16(x).bits; });
      }
    }
  }
}

bool Section::has_vectors() const {
  return vector_dim_ > 0 &&
         vectors_.size() == static_cast<std::size_t>(layers_ * config_.heads) *
                                area(rows_ + columns_, vector_dim_);
}

std::span<const std::uint16_t> Section::vectors(std::int64_t layer,
                                                std::int64_t head) const {
  require(has_vectors(), "view::Section", "'", config_.name,
          "' has no queries and keys, only weights");
  const std::size_t size = area(rows_ + columns_, vector_dim_);
  return std::span(vectors_).subspan(place(layer, head) * size, size);
}

std::vector<std::uint16_t> Section::rows_of(Range queries) const {
  require(queries.first >= 0 && queries.first <= queries.last &&
              queries.last < rows_,
          "view::Section", "'", config_.name, "' has queries 0 .. ", rows_ - 1,
          "; got ", queries.first, " to ", queries.last);
  const auto count =
      static_cast<std::uint64_t>(queries.last - queries.first) + 1;
  std::vector<std::uint16_t> result;
  result.reserve(area(layers_ * config_.heads, columns_));
  for (std::int64_t i = 0; i < layers_ * config_.heads; ++i) {
    const auto all = codes(i / config_.heads, i % config_.heads);
    for (std::int64_t k = 0; k < columns_; ++k) {
      std::uint64_t sum = count / 2;
      for (std::int64_t q = queries.first; q <= queries.last; ++q) {
        sum += all[area(q, columns_) + static_cast<std::size_t>(k)];
      }
      result.push_back(static_cast<std::uint16_t>(sum / count));
    }
  }
  return result;
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
  return (codes_.size() + vectors_.size()) * sizeof(codes_[0]) +
         thumbnails_.cells.size() + statistics_.size() * sizeof(statistics_[0]);
}

std::size_t Trace::add_axis(Axis axis) {
  if (axis.pictures) {
    const AxisPictures& p = *axis.pictures;
    require(area(p.rows, p.columns) * p.images.size() == axis.tokens.size(),
            "view::Trace", "'", axis.name, "' must have a token for each of ",
            p.images.size(), " x ", p.rows, " x ", p.columns,
            " places; it has ", axis.tokens.size());
  }
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

void Trace::set_start(Start start) {
  if (start.section) (void)section(*start.section);
  const auto has = [&start](const Section& one) {
    return start.layer.value_or(0) < one.layers() &&
           start.head.value_or(0) < one.config().heads;
  };
  const auto said = [](const char* name, std::optional<std::int64_t> value) {
    std::string text;
    if (value)
      text.append(" ").append(name).append(" ").append(std::to_string(*value));
    return text;
  };
  const bool counted =
      start.layer.value_or(0) >= 0 && start.head.value_or(0) >= 0;
  bool found = sections_.empty();
  std::string there;
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    const Section& one = sections_[i];
    if (start.section && *start.section != static_cast<std::int64_t>(i)) {
      continue;
    }
    found = found || has(one);
    there += (there.empty() ? "'" : ", '") + one.config().name +
             "' has layers 0 .. " + std::to_string(one.layers() - 1) +
             " and heads 0 .. " + std::to_string(one.config().heads - 1);
  }
  require(counted && found, "view::Trace",
          "the page must open at a head that is there: ", there, "; got",
          said("layer", start.layer), said("head", start.head));
  start_ = start;
}

std::size_t Trace::bytes() const {
  std::size_t result = source.size() + target.size();
  for (const Axis& axis : axes_) {
    for (const std::string& token : axis.tokens) {
      result += token.size() + sizeof(token);
    }
    if (!axis.pictures) continue;
    for (const std::string& image : axis.pictures->images) {
      result += image.size();
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
