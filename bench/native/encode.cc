// SPDX-License-Identifier: Apache-2.0
// tasks::TextEncoder at work, for bench/quantised.py.
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "bench.h"
#include "regard/tasks/text_encoder.h"

namespace {

struct Encoding {
  regard::tasks::TextEncoder model;
  std::vector<std::string> texts;
  regard::Tensor vectors;  // [texts, embedding_dim] of the last run
};

}  // namespace

// `texts`, a line each.
extern "C" void* regard_bench_make_encoder(const char* folder,
                                           const char* texts,
                                           std::int32_t in_int8) {
  using regard::ops::WeightStorage;
  return regard::bench::made([&] {
    auto* const encoding = new Encoding{
        regard::tasks::TextEncoder::load(
            folder, {},
            in_int8 != 0 ? WeightStorage::kInt8 : WeightStorage::kFloat32),
        {},
        {}};
    std::istringstream in(texts);
    for (std::string line; std::getline(in, line);) {
      encoding->texts.push_back(line);
    }
    return encoding;
  });
}

extern "C" void regard_bench_release_encoder(void* encoder) {
  delete static_cast<Encoding*>(encoder);
}

extern "C" const float* regard_bench_encoder_vectors(void* encoder) {
  return static_cast<Encoding*>(encoder)->vectors.view<float, 2>().data();
}

extern "C" std::int64_t regard_bench_encoder_width(void* encoder) {
  return static_cast<Encoding*>(encoder)->model.config().embedding_dim();
}

// How many multiplications with weights all texts take.
extern "C" std::int64_t regard_bench_encoder_work(void* encoder) {
  const auto& e = *static_cast<Encoding*>(encoder);
  const auto& c = e.model.config();
  std::int64_t tokens = 0;
  for (const std::string& text : e.texts) {
    tokens += static_cast<std::int64_t>(
        e.model.tokenizer()
            .encode(text, {.max_length = c.max_length})
            .ids.size());
  }
  return tokens * c.layers * c.model_dim *
         (4 * c.model_dim + 2 * c.feed_forward_dim);
}

extern "C" double regard_bench_encode(void* encoder, std::int32_t threads,
                                      std::int64_t calls) {
  auto& e = *static_cast<Encoding*>(encoder);
  return regard::bench::guarded([&] {
    return regard::bench::timed(calls, [&] {
      e.vectors = e.model.encode(e.texts, {.threads = {.count = threads}});
    });
  });
}
