// SPDX-License-Identifier: Apache-2.0
// What most files include, parsed once where there is no compiler cache: see
// regard_precompile in CMakeLists.txt. Every file still names what it needs.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/weights.h"
#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/core/random.h"
#include "regard/core/threads.h"
#include "regard/io/safetensors.h"
#include "regard/ops/memory_pool.h"
#include "regard/tensor/tensor.h"
