// SPDX-License-Identifier: Apache-2.0
// The tokenizer of every pretrained model: added tokens, normalizer, words,
// pieces, special tokens around them, and back.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "regard/text/tokenizer.h"
#include "text/added_tokens.h"
#include "text/decoders.h"
#include "text/models.h"
#include "text/normalizers.h"
#include "text/post_processors.h"
#include "text/pre_tokenizers.h"

namespace regard::text {

struct PipelineParts {
  std::unique_ptr<Vocabulary> vocabulary;
  AddedTokens added;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<Model> model;                 // borrows the vocabulary
  PostProcessor post_processor;
  std::unique_ptr<Decoder> decoder;  // null: pieces with blanks between
  SpecialIds special;
  // Pieces that are no added tokens and yet leave no trace.
  std::vector<bool> control = {};
  std::string unknown_text = "";  // what the unknown piece is decoded as
  // Writes the files, or throws.
  std::function<void(const std::filesystem::path& folder)> save;
};

std::unique_ptr<Tokenizer> make_pipeline(PipelineParts parts);

}  // namespace regard::text
