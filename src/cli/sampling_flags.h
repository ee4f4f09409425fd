// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/options.h"
#include "regard/tasks/generate.h"

namespace regard::cli {

void add_sampling_flags(App& app, tasks::Sampling& sampling);
// Throws UsageError for flags that have no effect together.
void check_sampling_flags(const tasks::Sampling& sampling);

}  // namespace regard::cli
