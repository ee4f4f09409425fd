// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cli/attention_flags.h"
#include "cli/options.h"
#include "regard/attention/attention.h"

namespace regard::cli {

// A subcommand: how it is spelled, and what it does once the command line is
// read. It throws UsageError for exit code 2, the library's errors for 1.
struct Command {
  App* app = nullptr;
  std::function<void()> run;
};

Command add_attend(App& program);
Command add_layer(App& program);
Command add_explain(App& program);
Command add_info(App& program);
Command add_generate(App& program);
Command add_train(App& program);
Command add_translate(App& program);
Command add_score(App& program);
Command add_view(App& program);

// What `regard` does alone: a few translations by the translator that comes
// with it, and where each piece looked.
void run_translation_demonstration();

// What `regard attend` does without files: a sentence through a layer of random
// weights, drawn on the screen.
void run_attention_demonstration(const AttentionFlags& flags, Score score);

}  // namespace regard::cli
