// SPDX-License-Identifier: Apache-2.0
// What most files include, parsed once where there is no compiler cache: see
// regard_precompile in CMakeLists.txt. Every file still names what it needs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
