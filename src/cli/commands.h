// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/attention_flags.h"
#include "regard/attention/attention.h"

namespace regard::cli {

// A subcommand: how it is spelled, and what it does once the command line is
// read. It throws UsageError for exit code 2, the library's errors for 1.
struct Command {
  CLI::App* app = nullptr;
  std::function<void()> run;
};

Command add_attend(CLI::App& program);
Command add_layer(CLI::App& program);
Command add_explain(CLI::App& program);
Command add_info(CLI::App& program);
Command add_generate(CLI::App& program);
Command add_train(CLI::App& program);
Command add_translate(CLI::App& program);
Command add_score(CLI::App& program);
Command add_view(CLI::App& program);

// What `regard` does alone: a few translations by the translator that comes
// with it, and where each piece looked.
void run_translation_demonstration();

// What `regard attend` does without files: a sentence through a layer of random
// weights, drawn on the screen.
void run_attention_demonstration(const AttentionFlags& flags, Score score);

}  // namespace regard::cli
