// SPDX-License-Identifier: Apache-2.0
// C++20 instantiates std::string in each file again; without optimisation, that
// is a tenth of the time of all. Here once: string.cc.
#include <string>

extern template class std::basic_string<char>;
