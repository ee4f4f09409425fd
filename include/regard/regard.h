// SPDX-License-Identifier: Apache-2.0
// All of regard's library: attention, the layer built from it, and its files.
#pragma once

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/attention/explain.h"
#include "regard/attention/weights.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/core/random.h"
#include "regard/core/threads.h"
#include "regard/core/version.h"
#include "regard/io/gguf.h"
#include "regard/io/llama2c.h"
#include "regard/io/npy.h"
#include "regard/io/safetensors.h"
#include "regard/mask/mask.h"
#include "regard/nn/multi_head_attention.h"
#include "regard/nn/norms.h"
#include "regard/nn/rotary.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"
