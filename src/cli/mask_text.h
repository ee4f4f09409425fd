// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "regard/mask/mask.h"
#include "regard/tensor/tensor.h"

namespace regard::cli {

// A mask, and the dense masks from files that it borrows.
struct OwnedMask {
  Mask mask;
  std::vector<Tensor> dense;
};

// What the help of a command says about parse_mask.
extern const char* const kMaskHelp;

// Masks as text, joined by commas; a pair is visible when every part says so.
//
//   causal | causal=top-left | causal=OFFSET
//   window=LEFT:RIGHT | window=BOTH      a negative width is no limit
//   prefix=N
//   lengths=N:N:... | lengths=FILE       one a batch
//   documents=ID:ID:... | documents=FILE one per position
//   keep=FILE | drop=FILE                bool, broadcast to [b, h, q, k]
//
// Throws UsageError for a text that is none of these, and what load_tensor
// throws for a file; InvalidArgument where the file holds another type.
OwnedMask parse_mask(std::span<const std::string> texts);

}  // namespace regard::cli
