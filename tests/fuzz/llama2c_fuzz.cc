// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or describe weights whose every
// byte may be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"
#include "regard/io/llama2c.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  regard::AlignedBuffer bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  try {
    const auto file = regard::Llama2cFile::parse(
        std::span<const std::byte>(bytes.data(), size));
    std::size_t total = 0;
    float sum = 0;
    for (const auto& [name, view] : file.parameters()) {
      for (std::int64_t i = 0; i < view.size(); ++i) sum += view.data()[i];
      total += static_cast<std::size_t>(view.size()) * sizeof(float);
    }
    if (total > size) std::abort();  // weights that share bytes
    volatile float used = sum;
    static_cast<void>(used);
  } catch (const regard::ParseError&) {
  }
  return 0;
}
