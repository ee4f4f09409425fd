// SPDX-License-Identifier: Apache-2.0
// Pictures from hostile bytes: read, or refused with ParseError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "regard/core/error.h"
#include "regard/pictures/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const regard::pictures::Picture picture = regard::pictures::decode_picture(
        std::as_bytes(std::span(data, size)), "fuzz");
    if (picture.rgb.size() !=
        static_cast<std::size_t>(3 * picture.width * picture.height)) {
      std::abort();
    }
  } catch (const regard::ParseError&) {
  }
  return 0;
}
