// SPDX-License-Identifier: Apache-2.0
#include "regard/core/version.h"

namespace regard {

const char* version() { return REGARD_VERSION; }

}  // namespace regard
