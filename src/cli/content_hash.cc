// SPDX-License-Identifier: Apache-2.0
#include "cli/content_hash.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "io/mapped_file.h"

namespace regard::cli {
namespace {

// Odd numbers without a pattern: the golden ratio and the square root of 3.
constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kStep = 0xbb67ae8584caa73b;

std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * kFactor, 29);
}

}  // namespace

// Four chains: one would wait for each of its multiplications.
std::string content_hash(std::span<const std::byte> bytes) {
  constexpr std::size_t kChains = 4, kWord = sizeof(std::uint64_t);
  std::array<std::uint64_t, kChains> states{};
  for (std::size_t i = 0; i < kChains; ++i) states[i] = kStep * (i + 1);
  std::size_t at = 0;
  for (; at + kChains * kWord <= bytes.size(); at += kChains * kWord) {
    std::array<std::uint64_t, kChains> words;
    std::memcpy(words.data(), bytes.data() + at, sizeof(words));
    for (std::size_t i = 0; i < kChains; ++i) {
      states[i] = mixed(states[i], words[i]);
    }
  }
  std::uint64_t all = bytes.size();
  for (; at < bytes.size(); ++at) {
    all = mixed(all, std::to_integer<std::uint64_t>(bytes[at]));
  }
  for (const std::uint64_t state : states) all = mixed(all, state);
  all ^= all >> 32;
  all *= kStep;
  all ^= all >> 29;
  return fmt::format("{:016x}", all);
}

std::string content_hash(std::string_view text) {
  return content_hash(std::as_bytes(std::span(text.data(), text.size())));
}

std::string content_hash(const StateDict& weights) {
  std::string all;
  for (const auto& [name, tensor] : weights) {
    all += name + content_hash({tensor.bytes(), tensor.byte_count()});
  }
  return content_hash(all);
}

std::string file_hash(const std::filesystem::path& path) {
  const io::MappedFile file(path, "search");
  return content_hash(file.bytes());
}

}  // namespace regard::cli
