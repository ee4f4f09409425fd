// SPDX-License-Identifier: Apache-2.0
// See tests/precompiled_string.h.
#include <string>

template class std::basic_string<char>;
