// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "regard/core/float16.h"

namespace regard::kernels {

// What elements of activations are stored as. Vectors of them are loaded and
// stored in tiles-inl.h and bf16/passes-inl.h.
enum class Storage { kFloat32, kBFloat16, kFloat16 };

inline std::int64_t bytes_of(Storage storage) {
  return storage == Storage::kFloat32 ? 4 : 2;
}

// Element number `at`, one at a time.
inline float load_element(const void* from, Storage storage, std::int64_t at) {
  const auto load = [&]<typename T>(T value) {
    std::memcpy(&value,
                static_cast<const char*>(from) +
                    at * static_cast<std::int64_t>(sizeof(T)),
                sizeof(T));
    return static_cast<float>(value);
  };
  switch (storage) {
    case Storage::kBFloat16:
      return load(BFloat16());
    case Storage::kFloat16:
      return load(Float16());
    case Storage::kFloat32:
      break;
  }
  return load(0.0f);
}

inline void store_element(float value, Storage storage, void* to,
                          std::int64_t at) {
  const auto store = [&]<typename T>(T rounded) {
    std::memcpy(
        static_cast<char*>(to) + at * static_cast<std::int64_t>(sizeof(T)),
        &rounded, sizeof(T));
  };
  switch (storage) {
    case Storage::kBFloat16:
      return store(BFloat16(value));
    case Storage::kFloat16:
      return store(Float16(value));
    case Storage::kFloat32:
      return store(value);
  }
}

}  // namespace regard::kernels
