// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or describe tensors whose every
// byte may be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "regard/core/error.h"
#include "regard/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file =
        regard::SafetensorsFile::parse(std::as_bytes(std::span(data, size)));
    std::size_t total = 0;
    for (const std::string& name : file.names()) {
      total += file.data(name).size();
    }
    if (total > size) std::abort();  // tensors that share bytes
    const regard::StateDict state = file.state_dict();
    if (state.size() != file.names().size()) std::abort();
  } catch (const regard::ParseError&) {
  }
  return 0;
}
