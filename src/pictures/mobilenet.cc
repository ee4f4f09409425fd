// SPDX-License-Identifier: Apache-2.0
#include "regard/pictures/mobilenet.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/convolution.h"
#include "ops/product.h"
#include "pictures/formats.h"
#include "regard/core/error.h"

namespace regard::pictures {
namespace {

constexpr const char* kWhere = "MobileNetV2";

// A 1 x 1 convolution: a product over pixels.
struct Pointwise {
  ops::PackedWeights weight;
  std::vector<float> bias;
};

struct Depthwise {
  std::vector<float> weight;  // [3, 3, channels]
  std::vector<float> bias;
  std::int64_t stride = 1;
};

// An inverted residual block: expand, filter, project.
struct Block {
  Pointwise expand;  // its weight is null in the first block
  Depthwise filter;
  Pointwise project;
  bool residual = false;
};

// Takes weights by their names and folds the norms that follow.
class Reader {
 public:
  Reader(const StateDict& weights, StateDict& taken)
      : weights_(weights), taken_(taken) {}

  struct Folded {
    std::vector<float> weight;  // [out, in]
    std::vector<float> bias;    // [out]
  };
  Folded folded(const std::string& convolution, const std::string& norm,
                const Shape& shape) {
    const std::int64_t out = shape[0];
    const auto w = take(convolution + ".weight", shape);
    const auto gamma = take(norm + ".weight", {out});
    const auto beta = take(norm + ".bias", {out});
    const auto mean = take(norm + ".running_mean", {out});
    const auto variance = take(norm + ".running_var", {out});
    Folded f{{w.begin(), w.end()}, {}};
    const std::size_t in = w.size() / static_cast<std::size_t>(out);
    for (std::size_t o = 0; o < gamma.size(); ++o) {
      constexpr double kEpsilon = 1e-5;
      const double factor =
          gamma[o] / std::sqrt(static_cast<double>(variance[o]) + kEpsilon);
      for (std::size_t i = o * in; i < (o + 1) * in; ++i) {
        f.weight[i] = static_cast<float>(f.weight[i] * factor);
      }
      f.bias.push_back(static_cast<float>(beta[o] - mean[o] * factor));
    }
    return f;
  }

  Pointwise pointwise(const std::string& convolution, const std::string& norm,
                      const Shape& shape) {
    Folded f = folded(convolution, norm, shape);
    const auto in = std::ssize(f.weight) / shape[0];
    return {ops::PackedWeights::pack({f.weight.data(), {shape[0], in}}),
            std::move(f.bias)};
  }

  Depthwise depthwise(const std::string& convolution, const std::string& norm,
                      std::int64_t channels, std::int64_t stride) {
    Folded f = folded(convolution, norm, {channels, 1, 3, 3});
    Depthwise d{std::vector<float>(f.weight.size()), std::move(f.bias), stride};
    const auto count = static_cast<std::size_t>(channels);
    for (std::size_t c = 0; c < count; ++c) {
      for (std::size_t t = 0; t < 9; ++t) {
        d.weight[t * count + c] = f.weight[9 * c + t];
      }
    }
    return d;
  }

 private:
  std::span<const float> take(const std::string& name, const Shape& shape) {
    const auto found = weights_.find(name);
    require(found != weights_.end(), kWhere, "there must be a weight '", name,
            "'; are these torchvision's weights of MobileNetV2?");
    const Tensor& tensor = found->second;
    require(tensor.dtype() == DType::kFloat32 && tensor.shape() == shape,
            kWhere, "'", name, "' must be float32 ", ShapeText{shape},
            "; it is ", to_string(tensor.dtype()), " ",
            ShapeText{tensor.shape()});
    taken_.insert_or_assign(name, tensor);
    return tensor.values<float>();
  }

  const StateDict& weights_;
  StateDict& taken_;
};

// A picture between two layers.
struct Plane {
  std::int64_t height = 0, width = 0, channels = 0;
  std::shared_ptr<float> data;

  std::int64_t pixels() const { return height * width; }
  ops::Rows rows() const { return {data.get(), {pixels(), channels}}; }
};

Plane plane(std::int64_t height, std::int64_t width, std::int64_t channels) {
  return {height, width, channels,
          ops::thread_memory_pool().take(height * width * channels)};
}

enum class After { kNothing, kRelu6 };

Plane run(const Pointwise& layer, const Plane& x, After after, Threads threads,
          ops::ConstRows residual = {}) {
  Plane y = plane(x.height, x.width, layer.weight.out());
  ops::Product product{.x = x.rows(),
                       .weight = &layer.weight,
                       .bias = layer.bias.data(),
                       .y = y.rows()};
  product.epilogue.residual = residual;
  if (after == After::kNothing) {
    ops::multiply(product, threads);
  } else {
    ops::multiply_rows(product, threads, ops::no_rows,
                       [&](std::int64_t begin, std::int64_t end) {
                         kernels::relu6(y.rows().at(begin),
                                        (end - begin) * y.channels);
                       });
  }
  return y;
}

Plane run(const Depthwise& layer, const Plane& x, Threads threads) {
  const auto size = [&](std::int64_t n) {
    return (n + layer.stride - 1) / layer.stride;
  };
  Plane y = plane(size(x.height), size(x.width), x.channels);
  const kernels::Depthwise job{.height = x.height,
                               .width = x.width,
                               .channels = x.channels,
                               .stride = layer.stride,
                               .x = x.data.get(),
                               .weight = layer.weight.data(),
                               .bias = layer.bias.data(),
                               .y = y.data.get()};
  parallel_for(threads, y.height,
               [&](std::int64_t row) { kernels::depthwise_row(job, row); });
  return y;
}

// The values under the first filter, which goes two pixels at a time: for each
// of its places [3, 3 x 3], channel by channel, zeros outside of the picture.
Plane first_taps(const Picture& picture, Threads threads) {
  constexpr std::array kMean = {0.485, 0.456, 0.406};
  constexpr std::array kDeviation = {0.229, 0.224, 0.225};
  std::array<std::array<float, 256>, 3> value;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = 0; i < 256; ++i) {
      value[c][i] = static_cast<float>(
          (static_cast<double>(i) / 255 - kMean[c]) / kDeviation[c]);
    }
  }
  Plane taps = plane((picture.height + 1) / 2, (picture.width + 1) / 2, 27);
  parallel_for(threads, taps.height, [&](std::int64_t i) {
    for (std::int64_t j = 0; j < taps.width; ++j) {
      float* const to = taps.rows().at(i * taps.width + j);
      for (std::int64_t t = 0; t < 9; ++t) {
        const std::int64_t y = 2 * i + t / 3 - 1;
        const std::int64_t x = 2 * j + t % 3 - 1;
        const bool inside =
            y >= 0 && y < picture.height && x >= 0 && x < picture.width;
        for (std::size_t c = 0; c < 3; ++c) {
          to[9 * c + static_cast<std::size_t>(t)] =
              inside ? value[c][picture.at(y, x)[c]] : 0.0f;
        }
      }
    }
  });
  return taps;
}

}  // namespace

struct MobileNetV2::Parts {
  StateDict weights;
  Pointwise first;  // a 3 x 3 convolution, over its taps
  std::vector<Block> blocks;
  Pointwise last;
};

MobileNetV2::MobileNetV2(const StateDict& weights) {
  auto parts = std::make_unique<Parts>();
  Reader read(weights, parts->weights);
  parts->first = read.pointwise("features.0.0", "features.0.1", {32, 3, 3, 3});
  // Table 2 of the paper.
  struct Group {
    std::int64_t expand, channels, blocks, stride;
  };
  constexpr std::array kGroups = {Group{1, 16, 1, 1}, Group{6, 24, 2, 2},
                                  Group{6, 32, 3, 2}, Group{6, 64, 4, 2},
                                  Group{6, 96, 3, 1}, Group{6, 160, 3, 2},
                                  Group{6, 320, 1, 1}};
  std::int64_t in = 32;
  for (const Group& group : kGroups) {
    for (std::int64_t i = 0; i < group.blocks; ++i) {
      const std::int64_t stride = i == 0 ? group.stride : 1;
      const std::int64_t hidden = in * group.expand;
      const std::string name =
          "features." + std::to_string(parts->blocks.size() + 1) + ".conv.";
      Block block;
      // Where nothing is expanded, the layers count from the filter on.
      const int at = group.expand == 1 ? 0 : 1;
      if (at == 1) {
        block.expand =
            read.pointwise(name + "0.0", name + "0.1", {hidden, in, 1, 1});
      }
      const std::string filter = name + std::to_string(at);
      block.filter =
          read.depthwise(filter + ".0", filter + ".1", hidden, stride);
      block.project = read.pointwise(name + std::to_string(at + 1),
                                     name + std::to_string(at + 2),
                                     {group.channels, hidden, 1, 1});
      block.residual = stride == 1 && in == group.channels;
      parts->blocks.push_back(std::move(block));
      in = group.channels;
    }
  }
  parts->last =
      read.pointwise("features.18.0", "features.18.1", {kWidth, in, 1, 1});
  parts_ = std::move(parts);
}

MobileNetV2::~MobileNetV2() = default;
MobileNetV2::MobileNetV2(MobileNetV2&&) noexcept = default;
MobileNetV2& MobileNetV2::operator=(MobileNetV2&&) noexcept = default;

const StateDict& MobileNetV2::weights() const { return parts_->weights; }

Tensor MobileNetV2::features(const Picture& picture, Threads threads) const {
  check_picture(picture, "MobileNetV2::features");
  Plane x =
      run(parts_->first, first_taps(picture, threads), After::kRelu6, threads);
  for (const Block& block : parts_->blocks) {
    const Plane wide = block.expand.weight.is_null()
                           ? x
                           : run(block.expand, x, After::kRelu6, threads);
    const Plane filtered = run(block.filter, wide, threads);
    x = run(block.project, filtered, After::kNothing, threads,
            block.residual ? ops::ConstRows(x.rows()) : ops::ConstRows{});
  }
  x = run(parts_->last, x, After::kRelu6, threads);
  Tensor out({x.pixels(), kWidth});
  std::copy_n(x.data.get(), out.size(), out.values<float>().data());
  return out;
}

}  // namespace regard::pictures
