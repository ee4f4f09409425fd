// SPDX-License-Identifier: Apache-2.0
#include "regard/view/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "view/layer_part.h"

namespace regard::view {
namespace {

// The pieces [first, last] of a word.
struct Word {
  std::int64_t first = 0, last = 0;
  std::int64_t size() const { return last - first + 1; }
};

std::vector<Word> words_of(const std::vector<std::int32_t>& words) {
  std::vector<Word> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    if (i > 0 && words[i] >= 0 && words[i] == words[i - 1]) {
      found.back().last = place;
    } else {
      found.push_back({place, place});
    }
  }
  return found;
}

// As the text has it; a special token, or one without bytes of its own, as the
// tokenizer writes it.
std::string label_of(const tasks::TextTrace& trace, const Word& word) {
  const auto first = static_cast<std::size_t>(word.first);
  const auto& offsets = trace.encoding.offsets;
  const std::int64_t begin = offsets[first].begin;
  const std::int64_t end = offsets[static_cast<std::size_t>(word.last)].end;
  std::string label;
  if (trace.encoding.words[first] >= 0 && begin < end) {
    label = trace.text.substr(static_cast<std::size_t>(begin),
                              static_cast<std::size_t>(end - begin));
    const std::size_t start = label.find_first_not_of(' ');
    label.erase(0, std::min(start, label.size()));
  }
  return label.empty() ? trace.pieces[first] : label;
}

// The mean over the pieces of the query, the sum over those of the key.
void merge(TensorView<const float, 3> weights, const std::vector<Word>& words,
           TensorView<float, 3> merged) {
  for (std::int64_t head = 0; head < weights.extent(0); ++head) {
    for (std::size_t q = 0; q < words.size(); ++q) {
      for (std::size_t k = 0; k < words.size(); ++k) {
        double sum = 0;
        for (std::int64_t i = words[q].first; i <= words[q].last; ++i) {
          for (std::int64_t j = words[k].first; j <= words[k].last; ++j) {
            sum += weights.at(head, i)[j];
          }
        }
        const double mean = sum / static_cast<double>(words[q].size());
        merged.at(head, static_cast<std::int64_t>(q))[k] =
            static_cast<float>(std::min(mean, 1.0));
      }
    }
  }
}

}  // namespace

Trace trace_encoding(const tasks::TextEncoder& encoder, const std::string& text,
                     const tasks::TextEncoderOptions& options) {
  const tasks::TextTrace seen = encoder.trace(text, options);
  const std::vector<Word> words = words_of(seen.encoding.words);
  Trace trace;
  trace.source = text;
  Axis axis{"source", {}};
  for (const Word& word : words) axis.tokens.push_back(label_of(seen, word));
  const std::size_t source = trace.add_axis(std::move(axis));
  const tasks::TextEncoderConfig& c = encoder.config();
  Section& section =
      trace.add_section({"encoder", source, source, c.heads, true});
  const auto count = static_cast<std::int64_t>(words.size());
  // What pieces were asked does not tell how a word of several came to look.
  const bool has_vectors =
      seen.queries.size() > 0 && words.size() == seen.pieces.size();
  Tensor merged({c.heads, count, count});
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    merge(layer_part(seen.weights, layer), words, merged.view<float, 3>());
    section.add_layer(std::as_const(merged).view<float, 3>());
    if (has_vectors) {
      section.add_vectors(layer_part(seen.queries, layer),
                          layer_part(seen.keys, layer),
                          1 / std::sqrt(static_cast<double>(c.head_dim())));
    }
  }
  return trace;
}

}  // namespace regard::view
