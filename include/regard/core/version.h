// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard {

// "0.1.0", of the library that is linked.
const char* version();

}  // namespace regard
