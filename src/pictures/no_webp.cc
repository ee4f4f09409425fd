// SPDX-License-Identifier: Apache-2.0
#include "pictures/formats.h"

namespace regard::pictures {

bool webp_available() { return false; }
// Nobody calls it: it is not available.
Picture decode_webp(Bytes, const std::string&) { return {}; }

}  // namespace regard::pictures
