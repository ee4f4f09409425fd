// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace regard::cli {

// What `regard train translate` is told.
struct TrainTranslateFlags {
  std::string src, tgt, tsv;
  std::string valid_src, valid_tgt, valid_tsv;
  double valid_share = 0.02;
  std::string out;
  bool resume = false;

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

  std::int64_t updates = 8000;
  std::int64_t epochs = 0;
  std::int64_t batch_tokens = 4096;
  std::int64_t accumulate = 1;
  std::string schedule = "inverse-sqrt";
  double rate = 0.005;
  std::int64_t warmup = 2000;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double weight_decay = 0.0;
  double clip = 0.0;
  std::int64_t validate_every = 0;
  std::int64_t patience = 0;
  std::int64_t average = 10;
  double checkpoint_every = 300;
  std::uint64_t seed = 1;
  int threads = 0;
  bool float16 = false;
};

void run_train_translate(const TrainTranslateFlags& flags);

}  // namespace regard::cli
