// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/tasks/language_model.h"
#include "regard/tasks/text_encoder.h"
#include "regard/tasks/translator.h"
#include "regard/view/trace.h"

namespace regard::cli {

// What reads the sentences of `regard view`, and how.
struct ViewModelFlags {
  std::string model;
  std::string tokenizer;
  std::string to;
  std::int64_t beam = 5;
  std::int64_t max_tokens = 0;
  int threads = 0;
};

// A kind of attention by its name, and how much of it there is.
struct AttentionKind {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
};

// What reads a sentence: one of them, or none.
struct ViewModel {
  std::optional<tasks::Translator> translator{};
  std::optional<tasks::TextEncoder> encoder{};
  std::optional<tasks::LoadedModel> language_model{};
};

// Throws UsageError for options that are for another kind of model.
ViewModel load_view_model(const ViewModelFlags& flags);

std::vector<AttentionKind> kinds_of(const ViewModel& model);
std::vector<AttentionKind> kinds_of(const view::Trace& trace);

tasks::TranslateOptions translate_options(const ViewModelFlags& flags);
view::Trace trace_of(const ViewModel& model, const std::string& text,
                     const ViewModelFlags& flags);

// The last part of a path that has a name.
std::string name_of(const std::string& path);

}  // namespace regard::cli
