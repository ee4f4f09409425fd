// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "tasks/next_token.h"

namespace regard::tasks {
namespace {

void check(const Sampling& s) {
  constexpr const char* kWhere = "sample_token";
  require(std::isfinite(s.temperature) && s.temperature >= 0, kWhere,
          "temperature must be finite and not negative; it is ", s.temperature);
  require(s.top_k >= 0, kWhere, "top_k must not be negative; it is ", s.top_k);
  require(s.top_p > 0 && s.top_p <= 1, kWhere,
          "top_p must be above 0 and at most 1; it is ", s.top_p);
}

// In [0, 1), 53 bits, a pure function of seed and position.
double uniform(std::uint64_t seed, std::int64_t position) {
  const auto at = static_cast<std::uint64_t>(position);
  const PhiloxCounter words =
      philox({static_cast<std::uint32_t>(at),
              static_cast<std::uint32_t>(at >> 32), 0, 0},
             seed);
  const double high = words[0] >> 5, low = words[1] >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

}  // namespace

std::int32_t sample_token(std::span<const float> scores,
                          const Sampling& sampling, std::int64_t position) {
  check(sampling);
  require(!scores.empty(), "sample_token", "there are no scores");
  for (const float score : scores) {
    require(std::isfinite(score), "sample_token",
            "scores must be finite; there is ", score,
            " (are the model's weights broken?)");
  }
  const auto best = std::max_element(scores.begin(), scores.end());
  if (sampling.temperature == 0) {
    return static_cast<std::int32_t>(best - scores.begin());
  }
  // 1. The best first; equals stay in order.
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) {
                     return scores[static_cast<std::size_t>(a)] >
                            scores[static_cast<std::size_t>(b)];
                   });
  if (sampling.top_k > 0 && sampling.top_k < std::ssize(order)) {
    order.resize(static_cast<std::size_t>(sampling.top_k));
  }
  // 2. Their probabilities, all over the first one's.
  std::vector<double> weights;
  for (const std::int32_t token : order) {
    const double below =
        static_cast<double>(scores[static_cast<std::size_t>(token)]) -
        static_cast<double>(*best);
    weights.push_back(std::exp(below / sampling.temperature));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  // 3. The fewest that have enough of it.
  if (sampling.top_p < 1) {
    const double enough = total * static_cast<double>(sampling.top_p);
    double sum = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && sum < enough) sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }
  // 4. The one where the sum passes a random share of the whole.
  double left = uniform(sampling.seed, position) * total;
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    if (left < weights[i]) return order[i];
    left -= weights[i];
  }
  return order[weights.size() - 1];
}

namespace {

// One text as it is written.
struct Text {
  explicit Text(const text::Tokenizer& tokenizer) : stream(tokenizer) {}

  std::vector<std::int32_t> to_read;  // the prompt, then one token at a time
  text::TextStream stream;
  Continuation written;
};

std::vector<Text> read_prompts(const LoadedModel& loaded,
                               std::span<const std::string> prompts) {
  constexpr const char* kWhere = "generate";
  const std::int64_t context = loaded.model.config().context;
  const text::SpecialIds special = loaded.tokenizer->special();
  std::vector<Text> texts(prompts.size(), Text(*loaded.tokenizer));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Text& text = texts[i];
    text.to_read = loaded.tokenizer->encode(prompts[i], {}).ids;
    if (text.to_read.empty()) {
      const std::int32_t first =
          special.begin >= 0 ? special.begin : special.end;
      require(first >= 0, kWhere,
              "the model has no token that begins a text; prompt ", i,
              " must not be empty");
      text.to_read = {first};
    }
    text.written.prompt_tokens = std::ssize(text.to_read);
    require(std::ssize(text.to_read) <= context, kWhere,
            "the model reads at most ", context, " tokens; prompt ", i, " has ",
            text.to_read.size());
    // What comes next may depend on the prompt's end, as a blank does.
    for (const std::int32_t token : text.to_read) text.stream.next(token);
    text.stream.rest();
  }
  return texts;
}

// Pages for the texts as long as they may become, not for the whole context.
LanguageStateOptions state_options(const LanguageModel& model,
                                   std::span<const Text> texts,
                                   const GenerateOptions& options) {
  LanguageStateOptions kept{.sequences = std::ssize(texts),
                            .cache = options.cache,
                            .threads = options.threads};
  kept.pages = 1;
  for (const Text& text : texts) {
    const std::int64_t read = std::ssize(text.to_read);
    const std::int64_t longest =
        read + std::min(model.config().context - read, options.max_tokens);
    kept.pages += (longest + kept.page_tokens - 1) / kept.page_tokens;
  }
  return kept;
}

}  // namespace

std::span<const float> scores_of(const LoadedModel& loaded,
                                 const LanguageState& state, std::int64_t row) {
  const std::int64_t pieces =
      std::min(loaded.model.config().vocab, loaded.tokenizer->size());
  return {state.logits().at(row), static_cast<std::size_t>(pieces)};
}

bool ends_text(const LoadedModel& loaded, std::int32_t token) {
  const auto& stop = loaded.stop_tokens;
  return std::find(stop.begin(), stop.end(), token) != stop.end();
}

std::vector<Continuation> generate(
    const LoadedModel& loaded, std::span<const std::string> prompts,
    const GenerateOptions& options,
    FunctionRef<void(std::int64_t, std::string_view)> on_text) {
  check(options.sampling);
  require(options.max_tokens >= 0, "generate",
          "max_tokens must not be negative; it is ", options.max_tokens);
  const LanguageModel& model = loaded.model;
  std::vector<Text> texts = read_prompts(loaded, prompts);
  LanguageState state(model, state_options(model, texts, options));
  std::vector<std::int64_t> active;  // the texts that go on
  if (options.max_tokens > 0) {
    active.resize(texts.size());
    std::iota(active.begin(), active.end(), 0);
  }
  while (!active.empty()) {
    std::vector<LanguageState::Reading> readings;
    for (const std::int64_t i : active) {
      readings.push_back({i, texts[static_cast<std::size_t>(i)].to_read});
    }
    state.read(readings);
    std::vector<std::int64_t> still;
    for (std::size_t row = 0; row < active.size(); ++row) {
      const std::int64_t i = active[row];
      Text& text = texts[static_cast<std::size_t>(i)];
      const std::int32_t token =
          sample_token(scores_of(loaded, state, static_cast<std::int64_t>(row)),
                       options.sampling, state.length(i));
      const auto write = [&](const std::string& more) {
        text.written.text += more;
        if (!more.empty()) on_text(i, more);
      };
      bool ends = ends_text(loaded, token);
      if (!ends) {
        text.to_read.assign(1, token);
        ++text.written.tokens;
        write(text.stream.next(token));
        ends = text.written.tokens == options.max_tokens ||
               state.length(i) == model.config().context;
      }
      if (ends) {
        write(text.stream.rest());
        state.release(i);
      } else {
        still.push_back(i);
      }
    }
    active = std::move(still);
  }
  std::vector<Continuation> written;
  for (Text& text : texts) written.push_back(std::move(text.written));
  return written;
}

}  // namespace regard::tasks
