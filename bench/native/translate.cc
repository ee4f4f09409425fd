// SPDX-License-Identifier: Apache-2.0
// tasks::Translator at work, for bench/translate.py.
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "bench.h"
#include "regard/tasks/translator.h"

namespace regard::bench {
namespace {

struct Translating {
  tasks::Translator model;
  std::string to;
  std::vector<std::string> sentences;
  std::string answer;  // of the last call that returned text
};

std::vector<std::string> lines_of(const char* text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& parts, char between) {
  std::string text;
  for (const std::string& part : parts) text += part + between;
  return text;
}

// The pieces of each sentence as the encoder reads them, without the end.
std::string sources_of(const Translating& t) {
  const text::Tokenizer& tokenizer = t.model.tokenizer();
  std::vector<std::string> lines;
  for (const std::string& sentence : t.sentences) {
    std::vector<std::string> pieces;
    if (!t.to.empty()) pieces.push_back(tasks::tag_of(t.to));
    for (const std::int32_t id : tokenizer.encode(sentence)) {
      pieces.push_back(tokenizer.piece(id));
    }
    lines.push_back(joined(pieces, ' '));
  }
  return joined(lines, '\n');
}

std::string pieces_of(const Translating& t) {
  std::vector<std::string> pieces;
  for (std::int64_t id = 0; id < t.model.tokenizer().size(); ++id) {
    pieces.push_back(t.model.tokenizer().piece(static_cast<std::int32_t>(id)));
  }
  return joined(pieces, '\n');
}

}  // namespace
}  // namespace regard::bench

using regard::bench::Translating;

// `sentences`, a line each; `to` is empty for a model of one direction.
extern "C" void* regard_bench_make_translator(const char* folder,
                                              const char* to,
                                              const char* sentences,
                                              std::int32_t in_int8) {
  using regard::ops::WeightStorage;
  return regard::bench::made([&] {
    return new Translating{regard::tasks::Translator::load(
                               folder, in_int8 != 0 ? WeightStorage::kInt8
                                                    : WeightStorage::kFloat32),
                           to,
                           regard::bench::lines_of(sentences),
                           {}};
  });
}

extern "C" void regard_bench_release_translator(void* translator) {
  delete static_cast<Translating*>(translator);
}

// How many weights the products of a source piece have, and those of a step of
// one hypothesis.
extern "C" std::int64_t regard_bench_encoder_weights(void* translator) {
  const auto& c = static_cast<Translating*>(translator)->model.config().model;
  const std::int64_t d = c.model_dim;
  return c.encoder_layers * (4 * d * d + 2 * d * c.feed_forward_dim) +
         c.decoder_layers * 2 * d * d;
}
extern "C" std::int64_t regard_bench_decoder_weights(void* translator) {
  const auto& c = static_cast<Translating*>(translator)->model.config().model;
  const std::int64_t d = c.model_dim;
  return c.decoder_layers * (6 * d * d + 2 * d * c.feed_forward_dim) +
         d * c.target_vocab;
}

// 0: all pieces, a line each. 1: the sentences in pieces. 2: the translations
// of the last run.
extern "C" const char* regard_bench_translator_text(void* translator,
                                                    std::int32_t what) {
  auto& t = *static_cast<Translating*>(translator);
  if (what == 0) t.answer = regard::bench::pieces_of(t);
  if (what == 1) t.answer = regard::bench::sources_of(t);
  return t.answer.c_str();
}

// The text of pieces with blanks between them.
extern "C" const char* regard_bench_decode_pieces(void* translator,
                                                  const char* pieces) {
  auto& t = *static_cast<Translating*>(translator);
  std::istringstream in(pieces);
  std::vector<std::int32_t> ids;
  for (std::string piece; in >> piece;) {
    ids.push_back(t.model.tokenizer().id_of(piece));
  }
  t.answer = t.model.tokenizer().decode(ids);
  return t.answer.c_str();
}

extern "C" double regard_bench_translate(void* translator, std::int64_t beam,
                                         std::int64_t batch,
                                         std::int64_t max_length,
                                         std::int32_t threads,
                                         std::int64_t calls) {
  auto& t = *static_cast<Translating*>(translator);
  regard::tasks::TranslateOptions options;
  options.beam = beam;
  options.batch = batch;
  options.max_length = max_length;
  options.to = t.to;
  options.threads = {.count = threads};
  return regard::bench::guarded([&] {
    std::vector<std::vector<regard::tasks::Translation>> found;
    const double seconds = regard::bench::timed(
        calls, [&] { found = t.model.translate(t.sentences, options); });
    std::vector<std::string> texts;
    for (const auto& best : found) texts.push_back(best.front().text);
    t.answer = regard::bench::joined(texts, '\n');
    return seconds;
  });
}
