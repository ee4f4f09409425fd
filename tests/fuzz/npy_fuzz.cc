// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or become a tensor.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "regard/core/error.h"
#include "regard/io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const regard::Tensor tensor =
        regard::parse_npy(std::as_bytes(std::span(data, size)));
    if (tensor.byte_count() > size) std::abort();  // more than the file has
  } catch (const regard::ParseError&) {
  }
  return 0;
}
