// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/core/float16.h"
#include "regard/core/threads.h"
#include "regard/pictures/mobilenet.h"
#include "regard/pictures/picture.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// What a model reads of a picture: rows of numbers, one for each place of a
// square grid, row by row.
struct PictureFeatures {
  enum class Kind {
    kPatches,      // the colours of patch x patch pixels, from -1 to 1
    kMobileNetV2,  // the last convolution of MobileNetV2
  };
  Kind kind = Kind::kPatches;
  std::int64_t side = 224;  // pictures are resized and cropped to side x side
  std::int64_t patch = 16;  // of kPatches; divides side

  std::int64_t grid() const {  // places each way
    const bool patches = kind == Kind::kPatches;
    return side / (patches ? patch : pictures::MobileNetV2::kStride);
  }
  std::int64_t places() const { return grid() * grid(); }
  std::int64_t width() const {  // numbers per place
    return kind == Kind::kPatches ? 3 * patch * patch
                                  : pictures::MobileNetV2::kWidth;
  }
};

// Makes the features of pictures. Never changes.
class FeatureReader {
 public:
  // Throws InvalidArgument where side is no multiple of the patch (of 32 for
  // MobileNetV2), or the network is missing or there for nothing.
  explicit FeatureReader(const PictureFeatures& features,
                         std::optional<pictures::MobileNetV2> network = {});

  const PictureFeatures& features() const { return features_; }
  const pictures::MobileNetV2* network() const {  // null for patches
    return network_ ? &*network_ : nullptr;
  }

  // [places, width], float16: what is kept of many pictures takes half as much
  // room, and what is made of one has the same bits.
  Tensor operator()(const pictures::Picture& picture,
                    Threads threads = {}) const;
  // Of some pictures, [sum of places, width] in float32.
  Tensor read(std::span<const std::filesystem::path> files,
              Threads threads = {}) const;

 private:
  PictureFeatures features_;
  std::optional<pictures::MobileNetV2> network_;
};

// The features of a set of pictures, in memory or in a file that is mapped.
class FeatureSet {
 public:
  using Report = std::function<void(std::int64_t done, std::int64_t all)>;

  // Reads folder / name for each name. Where `cache` is named, the features are
  // kept in that file (safetensors, a tensor per picture), and the next time
  // they come from it, if the pictures and the network are the same to the
  // byte. Report is called by one thread at a time. Throws what read_picture()
  // throws.
  static FeatureSet make(const FeatureReader& reader,
                         const std::filesystem::path& folder,
                         std::span<const std::string> names,
                         const std::filesystem::path& cache,
                         const Report& report = {}, Threads threads = {});

  // Features that were made elsewhere: [places, width] in float16 each.
  // `made_of` tells a training that goes on whether they are the same.
  explicit FeatureSet(std::vector<Tensor> features, std::string made_of = "");

  ~FeatureSet();
  FeatureSet(FeatureSet&&) noexcept;
  FeatureSet& operator=(FeatureSet&&) noexcept;

  // [places * width] of picture i.
  std::span<const Float16> of(std::int64_t i) const;
  // A hash of the pictures and the network.
  const std::string& made_of() const;

 private:
  struct Parts;
  explicit FeatureSet(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace regard::tasks
