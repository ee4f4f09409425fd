// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or describe settings and tensors
// whose every byte may be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"
#include "regard/io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

template <typename Read>
void allow_refusal(const Read& read) {
  try {
    read();
  } catch (const regard::ParseError&) {
  }
}

void read_all(const regard::GgufFile& file, std::size_t size) {
  std::size_t total = 0;
  float sum = 0;
  for (const std::string& name : file.names()) {
    const regard::Tensor tensor = file.tensor(name);
    for (const float value : tensor.values<float>()) sum += value;
    total += tensor.values<float>().size() / 2;  // 4 bits are the fewest
  }
  if (total > size) std::abort();  // tensors that share bytes
  volatile float used = sum;
  static_cast<void>(used);
  for (const std::string& key : file.keys()) {
    allow_refusal([&] { file.integer(key); });
    allow_refusal([&] { file.real(key); });
    allow_refusal([&] { file.flag(key); });
    allow_refusal([&] { file.text(key); });
    allow_refusal([&] { file.texts(key); });
    allow_refusal([&] { file.reals(key); });
    allow_refusal([&] { file.integers(key); });
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  regard::AlignedBuffer bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  allow_refusal([&] {
    const std::span<const std::byte> span(bytes.data(), size);
    read_all(regard::GgufFile::parse(span), size);
  });
  return 0;
}
