// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/attention_flags.h"
#include "regard/nn/multi_head_attention.h"

namespace regard::cli {

// One call of a layer on float32 inputs [len, width] or [batch, len, width],
// with its results where the flags want them: in files, on the screen.
void call_layer(const nn::MultiHeadAttention& layer, const Inputs& inputs,
                const AttentionFlags& flags);

}  // namespace regard::cli
