// SPDX-License-Identifier: Apache-2.0
// The options of every model that reads with an encoder: how text is cut, and
// the sizes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "cli/options.h"
#include "regard/nn/encoder.h"
#include "regard/text/tokenizer.h"

namespace regard::cli {

struct TextFlags {
  std::string pieces = "words";
  std::int64_t vocab = 20000;
  std::int64_t min_count = 1;
  bool keep_case = false;
  double coverage = 0.9998;
};

struct EncoderFlags {
  std::int64_t layers = 2;
  std::int64_t dim = 128;
  std::int64_t heads = 4;
  std::int64_t ffn = 256;
  std::string activation = "gelu";
  bool norm_last = false;
  std::string positions = "rotary";
  std::string pooling = "mean";
  std::int64_t max_length = 512;
  double dropout = 0.1;
  double attention_dropout = 0.0;
  double activation_dropout = 0.0;
};

void add_text_flags(App& app, TextFlags& flags);
// The sizes and rates of the layers; and with them pooling and --max-length.
void add_layer_flags(App& app, EncoderFlags& flags);
void add_encoder_flags(App& app, EncoderFlags& flags);

// Throws UsageError for an option that the kind of pieces does not have; one
// that is as in `unset` was not given.
void check(const TextFlags& flags, const TextFlags& unset = {});
// Learns the vocabulary from the texts.
std::unique_ptr<text::Tokenizer> make_tokenizer(
    const TextFlags& flags, std::span<const std::string> texts);
void add_settings(const TextFlags& flags,
                  std::map<std::string, std::string>& settings);

// Throws UsageError for values that do not go together.
nn::EncoderConfig encoder_config(const EncoderFlags& flags, std::int64_t vocab);

}  // namespace regard::cli
