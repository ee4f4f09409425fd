// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cli/learning_flags.h"
#include "cli/ranks.h"
#include "regard/tasks/translation_data.h"

namespace regard::cli {

// What `regard train translate` is told.
struct TrainTranslateFlags {
  std::string src, tgt, tsv, back_tsv;
  std::string valid_src, valid_tgt, valid_tsv;
  double valid_share = 0.02;
  std::string begin_with;

  std::string tokenizer;
  std::string pieces = "unigram";
  std::int64_t vocab = 8000;
  double coverage = 0.9998;
  std::int64_t max_length = 200;
  std::string src_lang = "source";
  std::string tgt_lang = "target";
  bool both_directions = false;

  std::int64_t encoder_layers = 4;
  std::int64_t decoder_layers = 4;
  std::int64_t dim = 128;
  std::int64_t heads = 4;
  std::int64_t ffn = 256;
  std::string activation = "relu";
  bool norm_first = false;
  double dropout = 0.3;
  double attention_dropout = 0.0;
  double activation_dropout = 0.0;
  double smoothing = 0.1;

  LearningFlags learning;
};

// What a resumed run must see again of the data.
void add_settings(const std::string& part, const tasks::TranslationData& data,
                  std::map<std::string, std::string>& settings);

// Says how many examples there are, and what was left out.
void tell_data(const char* what, const tasks::TranslationData& data);

void run_train_translate(const TrainTranslateFlags& flags, Ranks& ranks);

}  // namespace regard::cli
