// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "text/pipeline.h"

namespace regard::text {

// What a model of SentencePiece says, wherever it is written.
struct SentencePieceModel {
  enum class Kind { kUnigram, kBpe };
  enum class Type { kNormal = 1, kUnk, kControl, kUserDefined, kUnused, kByte };

  Kind kind = Kind::kUnigram;
  std::vector<std::string> pieces;
  std::vector<double> scores;
  std::vector<Type> types;
  bool byte_fallback = false;
  SentencePieceNormalizerOptions normalizer;
  SpecialIds special;
  std::string unknown_text = " \xE2\x81\x87 ";
};

// Everything but how it is saved, and added tokens. Throws ParseError that
// starts with `where` for what does not fit together.
PipelineParts sentencepiece_parts(SentencePieceModel model,
                                  const std::string& where);

}  // namespace regard::text
