// SPDX-License-Identifier: Apache-2.0
#include "pictures/formats.h"

namespace regard::pictures {

bool jpeg_available() { return false; }
// Nobody calls it: it is not available.
Picture decode_jpeg(Bytes, const std::string&) { return {}; }

}  // namespace regard::pictures
