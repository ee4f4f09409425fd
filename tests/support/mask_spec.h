// SPDX-License-Identifier: Apache-2.0
// A mask told twice: as a regard::Mask, and as a plain rule for one pair that
// shares nothing with it. The rules are transcribed from regard/mask/mask.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "regard/mask/mask.h"

namespace regard::test {

using Rng = std::mt19937_64;

// Uniform in [low, high].
inline std::int64_t pick(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}
inline bool chance(Rng& rng, double p) {
  return std::bernoulli_distribution(p)(rng);
}
inline std::int64_t one_of(Rng& rng,
                           std::initializer_list<std::int64_t> choices) {
  return choices.begin()[pick(rng, 0, std::ssize(choices) - 1)];
}

struct PairSizes {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t q_len = 1;
  std::int64_t kv_len = 1;
};

// Bools that a TensorView can borrow, which std::vector<bool> cannot lend.
struct DenseBools {
  std::array<std::int64_t, 4> shape{};
  std::shared_ptr<bool[]> values;

  explicit DenseBools(std::array<std::int64_t, 4> extents)
      : shape(extents), values(new bool[std::max<std::size_t>(1, size())]()) {}
  DenseBools() = default;

  std::size_t size() const {
    std::size_t n = 1;
    for (const std::int64_t extent : shape)
      n *= static_cast<std::size_t>(extent);
    return n;
  }
  bool& operator()(std::int64_t b, std::int64_t h, std::int64_t i,
                   std::int64_t j) const {
    const std::array<std::int64_t, 4> index{b, h, i, j};
    std::int64_t place = 0;
    for (std::size_t d = 0; d < 4; ++d) {
      place = place * shape[d] + (shape[d] == 1 ? 0 : index[d]);
    }
    return values[static_cast<std::size_t>(place)];
  }
  TensorView<const bool, 4> view() const { return {values.get(), shape}; }
};

struct MaskSpec {
  enum class Kind {
    kCausal,
    kWindow,
    kPrefix,
    kLengths,
    kDocuments,
    kKeep,
    kDrop
  };
  struct Part {
    Kind kind = Kind::kCausal;
    mask::Alignment alignment{};
    std::int64_t left = 0;   // window
    std::int64_t right = 0;  // window
    std::int64_t shown = 0;  // prefix
    std::vector<std::int64_t> kv_lengths{};
    std::vector<std::int64_t> query_lengths{};  // empty: not limited
    std::vector<std::int32_t> query_ids{};
    std::vector<std::int32_t> key_ids{};
    DenseBools dense{};
  };
  std::vector<Part> parts;

  MaskSpec() = default;
  explicit MaskSpec(Part part) { parts.push_back(std::move(part)); }

  friend MaskSpec operator&(MaskSpec a, const MaskSpec& b) {
    a.parts.insert(a.parts.end(), b.parts.begin(), b.parts.end());
    return a;
  }

  bool visible(const PairSizes& sizes, std::int64_t b, std::int64_t h,
               std::int64_t i, std::int64_t j) const {
    for (const Part& part : parts) {
      if (!shows(part, sizes, b, h, i, j)) return false;
    }
    return true;
  }

  // Borrows the dense values of this description.
  Mask build() const {
    Mask all;
    for (const Part& part : parts) all = all & build(part);
    return all;
  }

  std::string describe() const {
    std::string text;
    for (const Part& part : parts) {
      const char* names[] = {"causal",    "window", "prefix", "lengths",
                             "documents", "keep",   "drop"};
      if (!text.empty()) text += " & ";
      text += names[static_cast<int>(part.kind)];
    }
    return text.empty() ? "none" : text;
  }

 private:
  static bool shows(const Part& part, const PairSizes& sizes, std::int64_t b,
                    std::int64_t h, std::int64_t i, std::int64_t j) {
    std::int64_t p = i;
    if (part.alignment.kind == mask::Alignment::Kind::kBottomRight) {
      p = i + sizes.kv_len - sizes.q_len;
    } else if (part.alignment.kind == mask::Alignment::Kind::kOffset) {
      p = i + part.alignment.offset;
    }
    switch (part.kind) {
      case Kind::kCausal:
        return j <= p;
      case Kind::kWindow:
        if (part.left >= 0 && j < p - part.left) return false;
        if (part.right >= 0 && j > p + part.right) return false;
        return true;
      case Kind::kPrefix:
        return j <= p || j < part.shown;
      case Kind::kLengths:
        if (!part.query_lengths.empty() && i >= part.query_lengths[b]) {
          return false;
        }
        return j < part.kv_lengths[b];
      case Kind::kDocuments:
        return part.query_ids[i] == part.key_ids[j];
      case Kind::kKeep:
        return part.dense(b, h, i, j);
      case Kind::kDrop:
        return !part.dense(b, h, i, j);
    }
    std::abort();
  }

  static Mask build(const Part& part) {
    switch (part.kind) {
      case Kind::kCausal:
        return mask::causal(part.alignment);
      case Kind::kWindow:
        return mask::window(part.left, part.right, part.alignment);
      case Kind::kPrefix:
        return mask::prefix(part.shown, part.alignment);
      case Kind::kLengths:
        return part.query_lengths.empty()
                   ? mask::lengths(part.kv_lengths)
                   : mask::lengths(part.kv_lengths, part.query_lengths);
      case Kind::kDocuments:
        return mask::documents(part.query_ids, part.key_ids);
      case Kind::kKeep:
        return mask::keep(part.dense.view());
      case Kind::kDrop:
        return mask::drop(part.dense.view());
    }
    std::abort();
  }
};

inline MaskSpec causal_spec(mask::Alignment alignment = mask::kBottomRight) {
  return MaskSpec({.kind = MaskSpec::Kind::kCausal, .alignment = alignment});
}
inline MaskSpec window_spec(std::int64_t left, std::int64_t right,
                            mask::Alignment alignment = mask::kBottomRight) {
  return MaskSpec({.kind = MaskSpec::Kind::kWindow,
                   .alignment = alignment,
                   .left = left,
                   .right = right});
}
inline MaskSpec prefix_spec(std::int64_t n,
                            mask::Alignment alignment = mask::kBottomRight) {
  return MaskSpec(
      {.kind = MaskSpec::Kind::kPrefix, .alignment = alignment, .shown = n});
}
inline MaskSpec lengths_spec(std::vector<std::int64_t> kv_lengths,
                             std::vector<std::int64_t> query_lengths = {}) {
  return MaskSpec({.kind = MaskSpec::Kind::kLengths,
                   .kv_lengths = std::move(kv_lengths),
                   .query_lengths = std::move(query_lengths)});
}
inline MaskSpec documents_spec(std::vector<std::int32_t> query_ids,
                               std::vector<std::int32_t> key_ids) {
  return MaskSpec({.kind = MaskSpec::Kind::kDocuments,
                   .query_ids = std::move(query_ids),
                   .key_ids = std::move(key_ids)});
}
inline MaskSpec keep_spec(DenseBools pairs) {
  return MaskSpec({.kind = MaskSpec::Kind::kKeep, .dense = std::move(pairs)});
}
inline MaskSpec drop_spec(DenseBools pairs) {
  return MaskSpec({.kind = MaskSpec::Kind::kDrop, .dense = std::move(pairs)});
}

// Each true with the chance p.
inline DenseBools random_bools(Rng& rng,
                               const std::array<std::int64_t, 4>& shape,
                               double p) {
  DenseBools bools(shape);
  for (std::size_t n = 0; n < bools.size(); ++n) {
    bools.values[n] = chance(rng, p);
  }
  return bools;
}

// Each extent whole or 1, values true with a chance that is itself random, so
// that blocks come out empty, full and mixed.
inline DenseBools random_bools(Rng& rng, const PairSizes& sizes) {
  const auto extent = [&](std::int64_t full) {
    return chance(rng, 0.35) ? std::int64_t{1} : full;
  };
  const std::array shape{extent(sizes.batch), extent(sizes.heads),
                         extent(sizes.q_len), extent(sizes.kv_len)};
  const double p = std::array{0.02, 0.3, 0.5, 0.9, 0.99}[pick(rng, 0, 4)];
  return random_bools(rng, shape, p);
}

// Runs of random length, ids in random order; queries take the ids of keys,
// with now and then one that no key has.
inline MaskSpec random_documents(Rng& rng, const PairSizes& sizes) {
  std::vector<std::int32_t> key_ids;
  std::int32_t id = 0;
  const std::int64_t longest =
      pick(rng, 1, std::max<std::int64_t>(1, sizes.kv_len));
  while (std::ssize(key_ids) < sizes.kv_len) {
    const std::int64_t left = sizes.kv_len - std::ssize(key_ids);
    const std::int64_t run = std::min(left, pick(rng, 1, longest));
    key_ids.insert(key_ids.end(), static_cast<std::size_t>(run), 7 * id - 3);
    ++id;
  }
  std::vector<std::int32_t> query_ids;
  for (std::int64_t i = 0; i < sizes.q_len; ++i) {
    const bool strange = key_ids.empty() || chance(rng, 0.05);
    query_ids.push_back(strange ? 1000000
                                : key_ids[static_cast<std::size_t>(
                                      pick(rng, 0, std::ssize(key_ids) - 1))]);
  }
  if (chance(rng, 0.5) && sizes.q_len == sizes.kv_len) query_ids = key_ids;
  return documents_spec(query_ids, key_ids);
}

inline mask::Alignment random_alignment(Rng& rng, const PairSizes& sizes) {
  switch (pick(rng, 0, 3)) {
    case 0:
      return mask::kTopLeft;
    case 1:
      return mask::at_offset(pick(rng, -sizes.q_len, sizes.kv_len));
    default:
      return mask::kBottomRight;
  }
}

inline std::vector<std::int64_t> random_lengths(Rng& rng, std::int64_t batch,
                                                std::int64_t limit) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < batch; ++b) {
    lengths.push_back(chance(rng, 0.2) ? limit : pick(rng, 0, limit));
  }
  return lengths;
}

inline MaskSpec random_mask_part(Rng& rng, const PairSizes& sizes) {
  switch (pick(rng, 0, 6)) {
    case 0:
      return causal_spec(random_alignment(rng, sizes));
    case 1:
      return window_spec(pick(rng, -1, sizes.kv_len / 2),
                         pick(rng, -1, sizes.kv_len / 2),
                         random_alignment(rng, sizes));
    case 2:
      return prefix_spec(pick(rng, 0, sizes.kv_len + 1),
                         random_alignment(rng, sizes));
    case 3:
      return lengths_spec(random_lengths(rng, sizes.batch, sizes.kv_len),
                          chance(rng, 0.5) && sizes.batch > 0
                              ? random_lengths(rng, sizes.batch, sizes.q_len)
                              : std::vector<std::int64_t>{});
    case 4:
      return random_documents(rng, sizes);
    case 5:
      return keep_spec(random_bools(rng, sizes));
    default:
      return drop_spec(random_bools(rng, sizes));
  }
}

// Up to three parts.
inline MaskSpec random_mask(Rng& rng, const PairSizes& sizes) {
  MaskSpec spec;
  const std::int64_t parts = one_of(rng, {0, 1, 1, 1, 2, 2, 3});
  for (std::int64_t n = 0; n < parts; ++n) {
    spec = spec & random_mask_part(rng, sizes);
  }
  return spec;
}

}  // namespace regard::test
