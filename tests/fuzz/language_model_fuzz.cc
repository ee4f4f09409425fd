// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or a GGUF model, and perhaps a
// tokenizer, that reads some tokens.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"
#include "regard/tasks/language_model.h"

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

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regard;
  AlignedBuffer bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  allow_refusal([&] {
    const GgufFile file =
        GgufFile::parse(std::span<const std::byte>(bytes.data(), size));
    allow_refusal([&] {
      const auto tokenizer = text::load_tokenizer(file);
      tokenizer->decode(tokenizer->encode("Once upon a time"));
    });
    const tasks::LanguageModel model = tasks::LanguageModel::from_gguf(file);
    tasks::LanguageState state(model, {.threads = {.count = 1}});
    const std::int32_t token = 0;
    const tasks::LanguageState::Reading reading{0, {&token, 1}};
    state.read({&reading, 1});
    if (state.logits().extent(1) != model.config().vocab) std::abort();
  });
  return 0;
}
