// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands.h"
#include "cli/options.h"

namespace regard::cli {

// `regard train <task>`, one each.
Command add_train_caption(App& train, Ranks& ranks);
Command add_train_classify(App& train, Ranks& ranks);
Command add_train_recommend(App& train, Ranks& ranks);
Command add_train_summarize(App& train, Ranks& ranks);
Command add_train_answer(App& train, Ranks& ranks);
Command add_train_video(App& train, Ranks& ranks);

}  // namespace regard::cli
