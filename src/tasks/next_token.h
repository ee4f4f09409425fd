// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "regard/tasks/language_model.h"

namespace regard::tasks {

// The scores of one row that may be drawn from: an embedding is often padded,
// and numbers that are no piece have no text.
std::span<const float> scores_of(const LoadedModel& loaded,
                                 const LanguageState& state, std::int64_t row);

bool ends_text(const LoadedModel& loaded, std::int32_t token);

}  // namespace regard::tasks
