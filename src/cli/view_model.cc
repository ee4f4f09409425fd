// SPDX-License-Identifier: Apache-2.0
#include "cli/view_model.h"

#include <algorithm>
#include <filesystem>

#include "cli/usage_error.h"
#include "regard/tasks/model_kind.h"
#include "regard/view/continuation.h"
#include "regard/view/encoding.h"
#include "regard/view/translation.h"

namespace regard::cli {

namespace fs = std::filesystem;

std::string name_of(const std::string& path) {
  fs::path clean = fs::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  return clean.filename().string();
}

ViewModel load_view_model(const ViewModelFlags& flags) {
  const tasks::ModelKind kind = tasks::find_model_kind(flags.model);
  const bool decoder = kind == tasks::ModelKind::kLanguageModel;
  if (kind != tasks::ModelKind::kTranslator && !flags.to.empty()) {
    throw UsageError(decoder ? "--to: a language model only continues texts"
                             : "--to: an encoder does not translate");
  }
  if (kind != tasks::ModelKind::kTranslator &&
      flags.beam != ViewModelFlags().beam) {
    throw UsageError("--beam: only a translator searches with a beam");
  }
  if (!decoder && flags.max_tokens > 0) {
    throw UsageError("--max-tokens: only a language model continues a text");
  }
  if (!decoder && !flags.tokenizer.empty()) {
    throw UsageError("--tokenizer: this model has its own");
  }
  ViewModel model;
  if (decoder) {
    std::optional<fs::path> tokenizer;
    if (!flags.tokenizer.empty()) tokenizer = flags.tokenizer;
    model.language_model = tasks::load_language_model(flags.model, tokenizer);
  } else if (kind == tasks::ModelKind::kTextEncoder) {
    model.encoder =
        tasks::TextEncoder::load(flags.model, {.count = flags.threads});
  } else {
    model.translator = tasks::Translator::load(flags.model);
  }
  return model;
}

namespace {

// Those of a translator's traces, in their order.
std::vector<AttentionKind> kinds_of(const nn::TransformerConfig& config) {
  std::vector<AttentionKind> kinds = {
      {"encoder", config.encoder_layers, config.heads},
      {"decoder", config.decoder_layers, config.heads},
      {"cross", config.decoder_layers, config.heads}};
  std::erase_if(kinds,
                [](const AttentionKind& kind) { return kind.layers == 0; });
  return kinds;
}

}  // namespace

std::vector<AttentionKind> kinds_of(const view::Trace& trace) {
  std::vector<AttentionKind> kinds;
  for (const view::Section& section : trace.sections()) {
    kinds.push_back(
        {section.config().name, section.layers(), section.config().heads});
  }
  return kinds;
}

std::vector<AttentionKind> kinds_of(const ViewModel& model) {
  if (model.translator) return kinds_of(model.translator->config().model);
  if (model.encoder) {
    const tasks::TextEncoderConfig& config = model.encoder->config();
    return {{"encoder", config.layers, config.heads}};
  }
  const auto& config = model.language_model->model.config();
  return {{"decoder", config.layers, config.heads}};
}

tasks::TranslateOptions translate_options(const ViewModelFlags& flags) {
  tasks::TranslateOptions options;
  options.beam = flags.beam;
  options.to = flags.to;
  options.threads = {.count = flags.threads};
  return options;
}

view::Trace trace_of(const ViewModel& model, const std::string& text,
                     const ViewModelFlags& flags) {
  const Threads threads{.count = flags.threads};
  view::Trace trace;
  if (model.encoder) {
    trace = view::trace_encoding(*model.encoder, text, {.threads = threads});
  } else if (model.language_model) {
    trace = view::trace_continuation(
        *model.language_model, text,
        {.max_tokens = flags.max_tokens, .threads = threads});
  } else {
    tasks::TranslateOptions options = translate_options(flags);
    if (options.to.empty()) {
      options.to =
          tasks::language_to(model.translator->config().languages, text);
    }
    trace = view::trace_translation(*model.translator, text, options);
  }
  trace.model = name_of(flags.model);
  trace.note = view::read_note(flags.model);
  return trace;
}

}  // namespace regard::cli
