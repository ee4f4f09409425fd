// SPDX-License-Identifier: Apache-2.0
// regard embed: texts as vectors, by a pretrained encoder.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/standard_input.h"
#include "cli/tensor_file.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/dist/communicator.h"
#include "regard/tasks/text_encoder.h"
#include "regard/text/lines.h"

namespace regard::cli {
namespace {

struct EmbedFlags {
  std::vector<std::string> texts;
  std::string model;
  std::string input;
  std::string out;
  std::string prompt;
  bool json = false;
  int threads = 0;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
};

constexpr const char* kFooter =
    R"(A text becomes a vector (an embedding). Texts with a similar meaning have
similar vectors; if the model normalizes them, their dot product is the cosine
similarity.

The model is a folder of Hugging Face or sentence-transformers, with
config.json, model.safetensors and a tokenizer: BERT, RoBERTa, XLM-R,
DistilBERT, MPNet or ALBERT. Pooling, normalization and the maximum length are
read from its files; without modules.json, pooling is the mean over the tokens.
Longer texts are truncated. The vectors are those of sentence-transformers. The
vector of a text has the same bits alone and in a batch, on any number of
threads.

The output has a line of numbers for each text, or with --json an object with
text and embedding. --out writes one array [texts, dimensions], .npy or
.safetensors. Without texts and --input, lines are read from standard input.

Examples:
  regard embed --model all-MiniLM-L6-v2 "A cat sits on the mat."
  regard embed --model all-MiniLM-L6-v2 --input reviews.txt --out reviews.npy
  cut -f2 questions.tsv | regard embed --model all-MiniLM-L6-v2 --json
  regard embed --model multilingual-e5-small --prompt query "Where is the cat?")";

// Each number is the shortest text that reads as the same float.
std::string numbers_of(const float* vector, std::int64_t size,
                       const char* between, const char* not_finite) {
  std::string line;
  for (std::int64_t i = 0; i < size; ++i) {
    if (i > 0) line += between;
    line +=
        std::isfinite(vector[i]) ? fmt::format("{}", vector[i]) : not_finite;
  }
  return line;
}

std::string json_of(const std::string& text, const float* vector,
                    std::int64_t size) {
  const std::string quoted = Json(text).dump({.replace_invalid = true});
  return fmt::format("{{\"text\":{},\"embedding\":[{}]}}", quoted,
                     numbers_of(vector, size, ",", "null"));
}

// The vectors of all texts, on rank 0: each rank embeds a share.
Tensor embed(const tasks::TextEncoder& encoder, const EmbedFlags& flags,
             std::span<const std::string> texts, dist::Communicator& ranks) {
  const auto share_texts = [&](int rank) {
    const dist::Part share =
        dist::part_of(std::ssize(texts), rank, ranks.size());
    return texts.subspan(static_cast<std::size_t>(share.begin),
                         static_cast<std::size_t>(share.end - share.begin));
  };
  Progress progress("embedding", "texts");
  Tensor own =
      encoder.encode(share_texts(ranks.rank()),
                     {.prompt = flags.prompt,
                      .threads = {.count = flags.threads},
                      .progress = [&](std::int64_t done, std::int64_t all) {
                        progress.update(done, all);
                      }});
  if (ranks.size() == 1) return own;
  std::vector<dist::Outgoing> sends;
  std::vector<dist::Incoming> receives;
  Tensor all;
  if (ranks.rank() == 0) {
    const std::int64_t size = encoder.config().embedding_dim();
    all = Tensor(Shape{std::ssize(texts), size});
    std::span<float> left = all.values<float>();
    std::ranges::copy(own.values<float>(), left.begin());
    for (int i = 0; i < ranks.size(); ++i) {
      const std::size_t count =
          share_texts(i).size() * static_cast<std::size_t>(size);
      if (i > 0) {
        receives.push_back({i, std::as_writable_bytes(left.first(count))});
      }
      left = left.subspan(count);
    }
  } else {
    sends.push_back({0, std::as_bytes(own.values<float>())});
  }
  ranks.start(sends, receives);
  ranks.finish();
  return all;
}

void run_embed(const EmbedFlags& flags, Ranks& ranks) {
  if (!flags.texts.empty() && !flags.input.empty()) {
    throw UsageError("give texts or --input, not both");
  }
  if (!flags.out.empty() && flags.json) {
    throw UsageError("give --out or --json, not both");
  }
  if (ranks.launched() > 1 && flags.input.empty()) {
    throw UsageError("several ranks share the lines of --input");
  }
  check_utf8(flags.texts, "embed");
  if (!flags.out.empty() && ranks.first()) check_can_save(flags.out);
  ranks.check_threads({.count = flags.threads});
  const Threads threads{.count = flags.threads};
  const auto encoder =
      tasks::TextEncoder::load(flags.model, threads, flags.weights);
  std::vector<std::string> texts = flags.texts;
  if (!flags.input.empty()) {
    texts = text::read_lines(flags.input);
  } else if (texts.empty()) {
    texts = text::read_lines(standard_input(), "standard input");
  }
  const Tensor vectors = embed(encoder, flags, texts, ranks.communicator());
  if (!ranks.first()) return;
  const std::int64_t size = encoder.config().embedding_dim();
  if (!flags.out.empty()) {
    save_tensor(flags.out, "embeddings", vectors);
    print(fmt::format("{} x {} -> {}\n", texts.size(), size,
                      on_one_line(flags.out)));
    return;
  }
  const auto rows = vectors.view<float, 2>();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const float* const row = rows.at(static_cast<std::int64_t>(i));
    print((flags.json ? json_of(texts[i], row, size)
                      : numbers_of(row, size, " ", "nan")) +
          "\n");
  }
}

}  // namespace

Command add_embed(App& program, Ranks& ranks) {
  const auto flags = std::make_shared<EmbedFlags>();
  App* app = program.add_subcommand(
      "embed", "Embed texts as vectors with a pretrained encoder");
  app->footer(kFooter);
  app->add_option("TEXTS", flags->texts, "What to embed")
      ->type_name("TEXT")
      ->may_be_empty();
  app->add_option("--model", flags->model, "The model's folder")
      ->type_name("FOLDER")
      ->required();
  app->add_option("--input", flags->input, "Texts, one per line")
      ->type_name("FILE");
  app->add_option("--out", flags->out, "Write the array to this file")
      ->type_name("FILE")
      ->check(check_place);
  app->add_flag("--json", flags->json, "A line of JSON for each text");
  app->add_option("--prompt", flags->prompt,
                  "Name of one of the model's prompts, such as query; it is "
                  "put before each text")
      ->type_name("NAME");
  add_weights_flag(*app, flags->weights);
  add_threads_flag(*app, flags->threads)->group("Machine");
  return {app, [flags, &ranks] { run_embed(*flags, ranks); }, true};
}

}  // namespace regard::cli
