// SPDX-License-Identifier: Apache-2.0
#include "pictures/formats.h"
#include "regard/core/error.h"

namespace regard::pictures {

bool png_available() { return false; }
// Nobody calls it: it is not available.
Picture decode_png(Bytes, const std::string&) { return {}; }
std::string write_png(const Picture&) {
  throw InvalidArgument("encode_png: this build has no PNG; it has " +
                        known_formats());
}

}  // namespace regard::pictures
