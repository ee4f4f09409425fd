// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or describe variables whose
// every byte may be read, and which take no more memory than four times theirs.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "regard/core/error.h"
#include "regard/io/ctranslate2.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using regard::Ctranslate2File;
  try {
    const auto file = Ctranslate2File::parse(
        {reinterpret_cast<const std::byte*>(data), size});
    for (const auto& [name, variable] : file.variables()) {
      if (variable.bytes.size() > size) std::abort();
      try {
        const regard::Tensor tensor = file.values(name);
        float sum = 0;
        for (const float value : tensor.values<float>()) sum += value;
        volatile float used = sum;
        static_cast<void>(used);
        if (static_cast<std::size_t>(tensor.size()) > size) std::abort();
      } catch (const regard::ParseError&) {
      }
      try {
        static_cast<void>(file.setting(name));
      } catch (const regard::ParseError&) {
      }
    }
  } catch (const regard::ParseError&) {
  }
  return 0;
}
