// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace regard {

// An error's message for somebody who calls no functions: without the names of
// those that refused. "Translator::load: 'x' is no model" becomes
// "'x' is no model"; "--head: there is no head 9" stays.
std::string plain_message(std::string_view message);

}  // namespace regard
