// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"

namespace regard::train {
namespace fs = std::filesystem;

namespace {

using Metadata = std::map<std::string, std::string>;

constexpr const char* kWhere = "train";
constexpr const char* kFormat = "regard training checkpoint 3";
// Its checksum is of the tensors alone.
constexpr const char* kFormatBefore = "regard training checkpoint 2";
constexpr const char* kParameters = "parameters/";
constexpr const char* kFirst = "adam.first/";
constexpr const char* kSecond = "adam.second/";
constexpr const char* kSetting = "setting/";
constexpr const char* kMilestone = "milestone-";
constexpr const char* kSuffix = ".safetensors";
constexpr const char* kChecksum = "checksum";

// FNV-1a over words of 8 bytes: a flipped bit does not go unseen.
std::string checksum(const StateDict& state, const Metadata& metadata) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * 0x100000001B3u;
    hash ^= hash >> 32;
  };
  const auto mix_text = [&mix](const std::string& text) {
    for (const char c : text) mix(static_cast<unsigned char>(c));
  };
  for (const auto& [name, tensor] : state) {
    mix_text(name);
    const std::byte* bytes = tensor.bytes();
    const std::size_t count = tensor.byte_count();
    for (std::size_t at = 0; at < count; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + at, std::min<std::size_t>(8, count - at));
      mix(word);
    }
  }
  for (const auto& [key, value] : metadata) {
    if (key == kChecksum) continue;
    mix_text(key);
    mix(key.size());
    mix_text(value);
    mix(value.size());
  }
  return std::to_string(hash);
}

// A double in hexadecimal comes back to the bit.
std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

const std::string& entry(const Metadata& metadata, const char* key,
                         const fs::path& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) {
    throw_parse_error(kWhere, "'", path.string(), "' has no ", key,
                      "; it is no checkpoint of a training");
  }
  return found->second;
}

std::int64_t number(const Metadata& metadata, const char* key,
                    const fs::path& path) {
  const std::string& text = entry(metadata, key, path);
  std::int64_t value = -1;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw_parse_error(kWhere, "'", path.string(), "': ", key,
                      " must be a count; got ", io::in_quotes(text));
  }
  return value;
}

double exact_number(const Metadata& metadata, const char* key,
                    const fs::path& path) {
  const std::string& text = entry(metadata, key, path);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') {
    throw_parse_error(kWhere, "'", path.string(), "': ", key,
                      " must be a number; got ", io::in_quotes(text));
  }
  return value;
}

void append(StateDict& all, const char* prefix, const StateDict& part) {
  for (const auto& [name, tensor] : part) all.emplace(prefix + name, tensor);
}

StateDict extract(StateDict& all, const std::string& prefix) {
  StateDict part;
  for (auto at = all.lower_bound(prefix);
       at != all.end() && at->first.starts_with(prefix); ++at) {
    part.emplace(at->first.substr(prefix.size()), std::move(at->second));
  }
  return part;
}

fs::path milestone_path(const fs::path& folder, std::int64_t update) {
  // Digits enough that names sort as the updates do.
  std::string digits = std::to_string(update);
  digits.insert(0, digits.size() < 9 ? 9 - digits.size() : 0, '0');
  return folder / (kMilestone + digits + kSuffix);
}

}  // namespace

std::string differences(const Settings& before, const Settings& now,
                        const char* was, const char* is) {
  std::string text;
  Settings all = before;
  all.insert(now.begin(), now.end());
  for (const auto& [name, value] : all) {
    const auto first = before.find(name), second = now.find(name);
    const std::string old = first == before.end() ? "not set" : first->second;
    const std::string current =
        second == now.end() ? "not set" : second->second;
    if (old == current) continue;
    text += "; " + name + " " + was + " " + old + ", " + is + " " + current;
  }
  return text;
}

FolderLock::FolderLock(const fs::path& folder)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // Where a file system has no locks, there are none.
  if (::flock(folder_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(folder_);
  throw_io_error(kWhere, "another training is at work in '", folder.string(),
                 "'");
}

FolderLock::~FolderLock() {
  if (folder_ >= 0) ::close(folder_);
}

fs::path checkpoint_path(const fs::path& folder) {
  return folder / "checkpoint.safetensors";
}

void save_checkpoint(const fs::path& folder, const Position& position,
                     const StateDict& parameters, const Adam& adam,
                     const Settings& settings) {
  StateDict all;
  append(all, kParameters, parameters);
  append(all, kFirst, adam.first_moments());
  append(all, kSecond, adam.second_moments());
  Metadata metadata = {
      {"format", kFormat},
      {"update", std::to_string(position.update)},
      {"epoch", std::to_string(position.epoch)},
      {"batch", std::to_string(position.batch)},
      {"best", exact(position.best)},
      {"worse", std::to_string(position.worse)},
      {"adam.steps", std::to_string(adam.steps())},
  };
  for (const auto& [name, value] : settings) metadata[kSetting + name] = value;
  metadata[kChecksum] = checksum(all, metadata);
  save_safetensors(checkpoint_path(folder), all, metadata);
}

Position load_checkpoint(const fs::path& folder, const Settings& settings,
                         StateDict& parameters, Adam& adam) {
  const fs::path path = checkpoint_path(folder);
  const SafetensorsFile file = SafetensorsFile::open(path);
  const Metadata& metadata = file.metadata();
  const std::string& format = entry(metadata, "format", path);
  if (format != kFormat && format != kFormatBefore) {
    throw_parse_error(kWhere, "'", path.string(),
                      "' has another format: ", io::in_quotes(format));
  }
  Position position;
  position.update = number(metadata, "update", path);
  position.epoch = number(metadata, "epoch", path);
  position.batch = number(metadata, "batch", path);
  position.best = exact_number(metadata, "best", path);
  position.worse = number(metadata, "worse", path);
  const std::int64_t steps = number(metadata, "adam.steps", path);
  StateDict all = file.state_dict();
  if (entry(metadata, kChecksum, path) !=
      checksum(all, format == kFormat ? metadata : Metadata{})) {
    throw_parse_error(kWhere, "the data of '", path.string(),
                      "' do not match their checksum: the file was changed");
  }
  Settings before;
  for (const auto& [name, value] : metadata) {
    if (!name.starts_with(kSetting)) continue;
    before.emplace(name.substr(std::strlen(kSetting)), value);
  }
  const std::string different = differences(before, settings);
  require(different.empty(), kWhere, "the training in '", folder.string(),
          "' goes on with the settings that it began with", different);
  StateDict weights = extract(all, kParameters);
  for (const auto& [name, tensor] : parameters) {
    const auto found = weights.find(name);
    require(found != weights.end() && weights.size() == parameters.size() &&
                found->second.shape() == tensor.shape() &&
                found->second.dtype() == tensor.dtype(),
            kWhere, "'", path.string(), "' is of another model: ", name,
            " does not fit");
  }
  adam.restore(steps, extract(all, kFirst), extract(all, kSecond));
  // In place: the model may hold on to its tensors.
  for (auto& [name, tensor] : parameters) {
    std::copy_n(weights.at(name).bytes(), tensor.byte_count(), tensor.bytes());
  }
  return position;
}

void save_milestone(const fs::path& folder, std::int64_t update,
                    const StateDict& parameters) {
  save_safetensors(milestone_path(folder, update), parameters,
                   {{"update", std::to_string(update)}});
}

std::vector<std::int64_t> list_milestones(const fs::path& folder) {
  std::vector<std::int64_t> updates;
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with(kMilestone) || !name.ends_with(kSuffix)) continue;
    const char* begin = name.c_str() + std::strlen(kMilestone);
    const char* end = name.c_str() + name.size() - std::strlen(kSuffix);
    std::int64_t update = 0;
    const auto [stop, error] = std::from_chars(begin, end, update);
    if (error == std::errc() && stop == end) updates.push_back(update);
  }
  std::sort(updates.begin(), updates.end());
  return updates;
}

void remove_milestone(const fs::path& folder, std::int64_t update) {
  std::error_code error;
  fs::remove(milestone_path(folder, update), error);
}

void remove_unfinished_files(const fs::path& folder) {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with(".regard-") && name.ends_with(".tmp")) {
      fs::remove(file.path(), error);
    }
  }
}

StateDict average_milestones(const fs::path& folder,
                             const std::vector<std::int64_t>& updates) {
  require(!updates.empty(), kWhere, "there must be at least one milestone");
  std::map<std::string, std::vector<double>> sums;
  StateDict mean;
  for (const std::int64_t update : updates) {
    const StateDict weights =
        SafetensorsFile::open(milestone_path(folder, update)).state_dict();
    if (mean.empty()) mean = weights;
    for (const auto& [name, tensor] : weights) {
      require(mean.contains(name) && mean.at(name).shape() == tensor.shape(),
              kWhere, "milestones must be of one model; ", name, " of update ",
              update, " does not fit");
      const auto values = tensor.values<float>();
      std::vector<double>& sum = sums[name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }
  }
  for (auto& [name, tensor] : mean) {
    const auto values = tensor.values<float>();
    const std::vector<double>& sum = sums.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] =
          static_cast<float>(sum[i] / static_cast<double>(updates.size()));
    }
  }
  return mean;
}

}  // namespace regard::train
