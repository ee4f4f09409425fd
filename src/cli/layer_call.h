// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/attention_flags.h"
#include "regard/nn/multi_head_attention.h"

namespace regard::cli {

// One call of a layer on float32 inputs [len, width] or [batch, len, width],
// with its results where the flags want them: in files, on the screen. The
// caption stands above a picture.
void call_layer(const nn::MultiHeadAttention& layer, const Inputs& inputs,
                const AttentionFlags& flags, const std::string& caption = "");

}  // namespace regard::cli
