// SPDX-License-Identifier: Apache-2.0
// The kinds of models that answer, as config.json names them.
#pragma once

namespace regard::tasks {

inline constexpr const char* kAnswererKind = "regard answerer";
inline constexpr const char* kSpanAnswererKind = "regard span answerer";
inline constexpr const char* kChoiceAnswererKind = "regard choice answerer";

}  // namespace regard::tasks
