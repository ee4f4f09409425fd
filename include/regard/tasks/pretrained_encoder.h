// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "regard/nn/encoder.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// A pretrained encoder for fine-tuning: nn::Encoder with
// this config and these values gives what TextEncoder gives before it
// normalizes, up to rounding.
struct PretrainedEncoder {
  nn::EncoderConfig config;  // drops nothing
  StateDict weights;         // all that nn::Encoder declares
  std::unique_ptr<text::Tokenizer> tokenizer;
};

// Reads a folder as TextEncoder::load() does: BERT, RoBERTa (XLM-R and
// CamemBERT, too) and DistilBERT, pooled by the mean or by the first token.
// max_length: tokens of a text that are read; 0: as many as the folder says.
//
// Throws as TextEncoder::load() does; ParseError also for MPNet and ALBERT,
// other poolings, and texts that must become small letters first;
// InvalidArgument for a max_length that the model has no places for.
PretrainedEncoder load_pretrained_encoder(const std::filesystem::path& folder,
                                          std::int64_t max_length = 0);

}  // namespace regard::tasks
