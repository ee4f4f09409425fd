// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/picture_features.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>
#include <utility>

#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/translation_data.h"

namespace regard::tasks {
namespace fs = std::filesystem;

namespace {

constexpr const char* kWhere = "FeatureSet";
constexpr const char* kMadeOf = "made of";  // the cache's metadata

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x100000001B3u;
}

std::uint64_t hash_of_bytes(std::span<const std::byte> bytes) {
  return hash_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string made_of(const FeatureReader& reader,
                    std::span<const std::string> names,
                    std::span<const std::uint64_t> contents) {
  const PictureFeatures& f = reader.features();
  std::uint64_t hash = 0;
  for (const std::int64_t number : {f.places(), f.width(), f.side}) {
    mix(hash, static_cast<std::uint64_t>(number));
  }
  if (reader.network() != nullptr) {
    for (const auto& [name, tensor] : reader.network()->weights()) {
      mix(hash, hash_of_bytes(std::as_bytes(tensor.values<float>())));
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    mix(hash, hash_of(names[i]));
    mix(hash, contents[i]);
  }
  std::ostringstream out;
  out << names.size() << " pictures (hash " << std::hex << hash << ")";
  return out.str();
}

// Of all pictures: they are read, and not decoded.
std::vector<std::uint64_t> hashes_of(const fs::path& folder,
                                     std::span<const std::string> names,
                                     Threads threads) {
  std::vector<std::uint64_t> hashes(names.size());
  parallel_for(threads, std::ssize(names), [&](std::int64_t number) {
    const auto i = static_cast<std::size_t>(number);
    hashes[i] = hash_of(io::read_regular(folder / names[i], kWhere));
  });
  return hashes;
}

}  // namespace

FeatureReader::FeatureReader(const PictureFeatures& features,
                             std::optional<pictures::MobileNetV2> network)
    : features_(features), network_(std::move(network)) {
  constexpr const char* kReader = "FeatureReader";
  const bool patches = features.kind == PictureFeatures::Kind::kPatches;
  const std::int64_t step =
      patches ? features.patch : pictures::MobileNetV2::kStride;
  constexpr std::int64_t kMost = 4096;
  require(step > 0 && features.side > 0 && features.side <= kMost &&
              features.side % step == 0,
          kReader, "the side must be a multiple of ", step, ", at most ", kMost,
          "; it is ", features.side);
  require(patches != network_.has_value(), kReader, "MobileNetV2 ",
          patches ? "has nothing to do with patches" : "must be given");
}

Tensor FeatureReader::operator()(const pictures::Picture& picture,
                                 Threads threads) const {
  const PictureFeatures& f = features_;
  const pictures::Picture seen = pictures::resize_and_crop(picture, f.side);
  Tensor out(DType::kFloat16, {f.places(), f.width()});
  const auto to = out.values<Float16>();
  if (network_) {
    const Tensor found = network_->features(seen, threads);
    const auto from = found.values<float>();
    std::transform(from.begin(), from.end(), to.begin(),
                   [](float value) { return Float16(value); });
    return out;
  }
  auto next = to.begin();
  for (std::int64_t place = 0; place < f.places(); ++place) {
    const std::int64_t top = place / f.grid() * f.patch;
    const std::int64_t left = place % f.grid() * f.patch;
    for (std::int64_t y = top; y < top + f.patch; ++y) {
      const std::uint8_t* const row = seen.at(y, left);
      for (std::int64_t i = 0; i < 3 * f.patch; ++i) {
        *next++ = Float16(static_cast<float>(row[i]) / 127.5f - 1.0f);
      }
    }
  }
  return out;
}

Tensor FeatureReader::read(std::span<const fs::path> files,
                           Threads threads) const {
  const std::int64_t size = features_.places() * features_.width();
  Tensor out({std::ssize(files) * features_.places(), features_.width()});
  float* const to = out.values<float>().data();
  const auto one = [&](std::int64_t i, Threads own) {
    const Tensor found = (*this)(
        pictures::read_picture(files[static_cast<std::size_t>(i)]), own);
    const auto from = found.values<Float16>();
    std::transform(from.begin(), from.end(), to + i * size,
                   [](Float16 value) { return static_cast<float>(value); });
  };
  if (files.size() == 1) {
    one(0, threads);
  } else {
    parallel_for(threads, std::ssize(files),
                 [&](std::int64_t i) { one(i, {.count = 1}); });
  }
  return out;
}

struct FeatureSet::Parts {
  std::string made_of;
  std::optional<SafetensorsFile> file;
  StateDict memory;
  std::vector<std::span<const Float16>> pictures;
};

FeatureSet::FeatureSet(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}
FeatureSet::FeatureSet(std::vector<Tensor> features, std::string made_of)
    : parts_(std::make_unique<Parts>()) {
  parts_->made_of = std::move(made_of);
  for (std::size_t i = 0; i < features.size(); ++i) {
    require(features[i].dtype() == DType::kFloat16 && features[i].rank() == 2,
            kWhere,
            "features must be float16 [places, width]; those of "
            "picture ",
            i, " are ", to_string(features[i].dtype()), " ",
            ShapeText{features[i].shape()});
    const auto [at, is_new] = parts_->memory.insert_or_assign(
        std::to_string(i), std::move(features[i]));
    parts_->pictures.push_back(std::as_const(at->second).values<Float16>());
  }
}
FeatureSet::~FeatureSet() = default;
FeatureSet::FeatureSet(FeatureSet&&) noexcept = default;
FeatureSet& FeatureSet::operator=(FeatureSet&&) noexcept = default;

std::span<const Float16> FeatureSet::of(std::int64_t i) const {
  return parts_->pictures[static_cast<std::size_t>(i)];
}
const std::string& FeatureSet::made_of() const { return parts_->made_of; }

FeatureSet FeatureSet::make(const FeatureReader& reader, const fs::path& folder,
                            std::span<const std::string> names,
                            const fs::path& cache, const Report& report,
                            Threads threads) {
  auto parts = std::make_unique<Parts>();
  parts->made_of =
      tasks::made_of(reader, names, hashes_of(folder, names, threads));
  std::error_code error;
  if (!cache.empty() && fs::exists(cache, error)) {
    SafetensorsFile file = SafetensorsFile::open(cache);
    const auto& metadata = file.metadata();
    const auto found = metadata.find(kMadeOf);
    if (found != metadata.end() && found->second == parts->made_of) {
      parts->file.emplace(std::move(file));
      for (const std::string& name : names) {
        const auto view = parts->file->view<Float16, 2>(name);
        parts->pictures.emplace_back(
            view.data(),
            static_cast<std::size_t>(view.extent(0) * view.extent(1)));
      }
      return FeatureSet(std::move(parts));
    }
  }
  std::mutex mutex;
  std::int64_t done = 0;
  parallel_for(threads, std::ssize(names), [&](std::int64_t i) {
    const std::string& name = names[static_cast<std::size_t>(i)];
    Tensor found = reader(pictures::read_picture(folder / name), {.count = 1});
    const std::lock_guard lock(mutex);
    parts->memory.insert_or_assign(name, std::move(found));
    if (report) report(++done, std::ssize(names));
  });
  if (!cache.empty()) {
    save_safetensors(cache, parts->memory, {{kMadeOf, parts->made_of}});
  }
  for (const std::string& name : names) {
    parts->pictures.push_back(
        std::as_const(parts->memory).at(name).values<Float16>());
  }
  return FeatureSet(std::move(parts));
}

}  // namespace regard::tasks
