// SPDX-License-Identifier: Apache-2.0
// The values of GGUF's tensors. A quantised type keeps a scale d, and perhaps a
// minimum m, for the small integers q of a block: x = d (q - zero) + m. The
// types of 256 elements (..._K) have such a pair for each 16 or 32 of them,
// itself quantised.
#include "io/gguf_tensors.h"

#include <array>
#include <cstring>

#include "regard/core/float16.h"

namespace regard::io {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

float half_at(const std::byte* from) {
  Float16 half;
  half.bits = load<std::uint16_t>(from);
  return static_cast<float>(half);
}

int byte_at(const std::byte* from, std::int64_t i) {
  return std::to_integer<int>(from[i]);
}

void read_f32(const std::byte* from, std::int64_t blocks, float* to) {
  std::memcpy(to, from, static_cast<std::size_t>(blocks) * sizeof(float));
}

void read_f16(const std::byte* from, std::int64_t blocks, float* to) {
  for (std::int64_t i = 0; i < blocks; ++i) to[i] = half_at(from + 2 * i);
}

void read_bf16(const std::byte* from, std::int64_t blocks, float* to) {
  for (std::int64_t i = 0; i < blocks; ++i) {
    BFloat16 value;
    value.bits = load<std::uint16_t>(from + 2 * i);
    to[i] = static_cast<float>(value);
  }
}

constexpr std::int64_t kBlock = 32;
constexpr std::int64_t kSuperBlock = 256;

void read_q8_0(const std::byte* from, std::int64_t blocks,
               const GgufCodes& to) {
  for (std::int64_t b = 0; b < blocks; ++b, from += 34) {
    to.scales[b] = half_at(from);
    std::memcpy(to.codes + b * kBlock, from + 2, kBlock);
  }
}

// Byte i has element i in its low half and element i + 16 in its high one; with
// five bits, bit i of a word of 32 is the highest of element i.
template <bool kFive, bool kMinimum>
void read_halves(const std::byte* from, std::int64_t blocks,
                 const GgufCodes& to) {
  constexpr std::int64_t kStart = (kMinimum ? 4 : 2) + (kFive ? 4 : 0);
  for (std::int64_t b = 0; b < blocks; ++b, from += kStart + 16) {
    to.scales[b] = half_at(from);
    if constexpr (kMinimum) to.minima[b] = half_at(from + 2);
    const std::uint32_t high =
        kFive ? load<std::uint32_t>(from + kStart - 4) : 0;
    const auto set = [&](int q, std::int64_t i) {
      if constexpr (kFive) q |= static_cast<int>(high >> i & 1u) << 4;
      to.codes[b * kBlock + i] = static_cast<std::int8_t>(q);
    };
    for (std::int64_t i = 0; i < 16; ++i) {
      const int q = byte_at(from + kStart, i);
      set(q & 15, i);
      set(q >> 4, i + 16);
    }
  }
}

// The eight pairs of six bits in the twelve bytes of Q4_K and Q5_K.
struct ScaleAndMinimum {
  int scale, minimum;
};
ScaleAndMinimum pair_at(const std::byte* from, std::int64_t j) {
  if (j < 4) return {byte_at(from, j) & 63, byte_at(from, j + 4) & 63};
  const int low = byte_at(from, j + 4);
  return {(low & 15) | byte_at(from, j - 4) >> 6 << 4,
          low >> 4 | byte_at(from, j) >> 6 << 4};
}

// d, the minima's d, 12 bytes of pairs; with five bits, 32 bytes of highest
// bits; 128 bytes of halves. Each 32 bytes have 64 elements: those of one pair
// in the low halves, of the next in the high ones.
template <bool kFive>
void read_q45_k(const std::byte* from, std::int64_t blocks,
                const GgufCodes& to) {
  constexpr std::int64_t kHigh = 16, kLow = kFive ? 48 : 16;
  std::int8_t* code = to.codes;
  for (std::int64_t b = 0; b < blocks; ++b, from += kLow + 128) {
    const float d = half_at(from), d_minimum = half_at(from + 2);
    for (std::int64_t j = 0; j < 8; ++j) {
      const ScaleAndMinimum pair = pair_at(from + 4, j);
      to.scales[b * 8 + j] = d * static_cast<float>(pair.scale);
      to.minima[b * 8 + j] = -(d_minimum * static_cast<float>(pair.minimum));
      const std::byte* const halves = from + kLow + j / 2 * 32;
      for (std::int64_t i = 0; i < 32; ++i) {
        int q = byte_at(halves, i) >> (j % 2 * 4) & 15;
        if constexpr (kFive) q |= (byte_at(from + kHigh, i) >> j & 1) << 4;
        *code++ = static_cast<std::int8_t>(q);
      }
    }
  }
}

// 128 bytes of low halves, 64 of two high bits each, 16 scales of 8 bits, d.
// Each half of a block: 64 bytes of low halves and 32 of high bits make four
// runs of 32.
void read_q6_k(const std::byte* from, std::int64_t blocks,
               const GgufCodes& to) {
  std::int8_t* code = to.codes;
  for (std::int64_t b = 0; b < blocks; ++b, from += 210) {
    const float d = half_at(from + 208);
    for (std::int64_t i = 0; i < 16; ++i) {
      to.scales[b * 16 + i] =
          d * static_cast<float>(load<std::int8_t>(from + 192 + i));
    }
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::byte* const low = from + half * 64;
      const std::byte* const high = from + 128 + half * 32;
      for (std::int64_t run = 0; run < 4; ++run) {
        for (std::int64_t i = 0; i < 32; ++i) {
          const int four = byte_at(low, run % 2 * 32 + i) >> (run / 2 * 4) & 15;
          const int two = byte_at(high, i) >> (2 * run) & 3;
          *code++ = static_cast<std::int8_t>(four | two << 4);
        }
      }
    }
  }
}

// Blocks of 32 with half floats, and of 256 with scales that are products.
constexpr GgufTensorType half_blocks(
    const char* name, std::int64_t bytes,
    void (*read)(const std::byte*, std::int64_t, const GgufCodes&), int zero,
    bool four_bits, bool has_minima) {
  return {.name = name,
          .block_elements = kBlock,
          .block_bytes = bytes,
          .read_codes = read,
          .group = kBlock,
          .zero = zero,
          .four_bits = four_bits,
          .has_minima = has_minima,
          .half_scales = true};
}
constexpr GgufTensorType super_blocks(
    const char* name, std::int64_t bytes,
    void (*read)(const std::byte*, std::int64_t, const GgufCodes&),
    std::int64_t group, int zero, bool four_bits, bool has_minima) {
  return {.name = name,
          .block_elements = kSuperBlock,
          .block_bytes = bytes,
          .read_codes = read,
          .group = group,
          .zero = zero,
          .four_bits = four_bits,
          .has_minima = has_minima};
}

struct Numbered {
  std::uint32_t number;
  GgufTensorType type;
};
constexpr std::array<Numbered, 11> kTypes = {{
    {0, {"F32", 1, 4, read_f32}},
    {1, {"F16", 1, 2, read_f16}},
    {2, half_blocks("Q4_0", 18, read_halves<false, false>, 8, true, false)},
    {3, half_blocks("Q4_1", 20, read_halves<false, true>, 0, true, true)},
    {6, half_blocks("Q5_0", 22, read_halves<true, false>, 16, false, false)},
    {7, half_blocks("Q5_1", 24, read_halves<true, true>, 0, false, true)},
    {8, half_blocks("Q8_0", 34, read_q8_0, 0, false, false)},
    {12, super_blocks("Q4_K", 144, read_q45_k<false>, 32, 0, true, true)},
    {13, super_blocks("Q5_K", 176, read_q45_k<true>, 32, 0, false, true)},
    {14, super_blocks("Q6_K", 210, read_q6_k, 16, 32, false, false)},
    {30, {"BF16", 1, 2, read_bf16}},
}};

}  // namespace

void read_gguf_values(const GgufTensorType& type, const std::byte* from,
                      std::int64_t blocks, float* to) {
  if (type.read != nullptr) return type.read(from, blocks, to);
  std::array<std::int8_t, kSuperBlock> codes;
  std::array<float, kSuperBlock / 16> scales, minima;
  for (std::int64_t b = 0; b < blocks; ++b, from += type.block_bytes) {
    type.read_codes(from, 1, {codes.data(), scales.data(), minima.data()});
    for (std::int64_t i = 0; i < type.block_elements; ++i) {
      const auto g = static_cast<std::size_t>(i / type.group);
      const int code = codes[static_cast<std::size_t>(i)] - type.zero;
      const float scaled = scales[g] * static_cast<float>(code);
      *to++ = type.has_minima ? scaled + minima[g] : scaled;
    }
  }
}

const GgufTensorType* gguf_tensor_type(std::uint32_t type) {
  for (const Numbered& known : kTypes) {
    if (known.number == type) return &known.type;
  }
  return nullptr;
}

}  // namespace regard::io
