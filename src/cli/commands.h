// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "cli/attention_flags.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "regard/attention/attention.h"

namespace regard::cli {

// A subcommand: how it is spelled, and what it does once the command line is
// read. It throws UsageError for exit code 2, the library's errors for 1.
struct Command {
  App* app = nullptr;
  std::function<void()> run;
  bool takes_ranks = false;  // several of mpirun share its work
};

Command add_attend(App& program);
Command add_layer(App& program);
Command add_explain(App& program);
Command add_info(App& program);
Command add_caption(App& program);
Command add_classify(App& program, Ranks& ranks);
Command add_recommend(App& program);
Command add_answer(App& program);
Command add_sample(App& program);
Command add_generate(App& program);
Command add_chat(App& program);
Command add_summarize(App& program);
Command add_train(App& program, Ranks& ranks);
Command add_translate(App& program, Ranks& ranks);
Command add_score(App& program);
Command add_video(App& program);
Command add_view(App& program);
Command add_embed(App& program, Ranks& ranks);
Command add_search(App& program);
Command add_quantize(App& program);

// What `regard` does alone: a few translations by the translator that comes
// with it, and where each word looked.
// `command` is what the user typed to start the program.
void run_translation_demonstration(const std::string& command);

// What `regard attend` does without files: a sentence through a layer of random
// weights, drawn on the screen.
void run_attention_demonstration(const AttentionFlags& flags, Score score);

}  // namespace regard::cli
