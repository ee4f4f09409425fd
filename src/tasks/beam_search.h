// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "regard/core/error.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// From -10 to 10; no NaN is.
inline bool is_length_penalty(double penalty) {
  return std::abs(penalty) <= 10;
}

struct SearchOptions {
  std::int64_t vocab = 0;  // must be given
  std::int64_t beam = 5;
  double length_penalty = 1;          // scores are divided by length^penalty
  std::int64_t max_length = 0;        // of an output; 0 means 2 * source + 20
  std::int64_t limit = 1024;          // of what the model can read at all
  std::int64_t align_layer = -1;      // whose cross attention is kept; -1: none
  std::int32_t begin = text::kBegin;  // what is read first
  std::int32_t end = text::kEnd;
  std::int32_t first = -1;  // what must be said first; -1: anything
  std::vector<std::int32_t> never = {text::kUnknown};  // is not said
  // So many tokens in a row are said once at most; 0: any number of times.
  std::int64_t no_repeat_ngram = 0;
};

struct Hypothesis {
  std::vector<std::int32_t> tokens;  // without the begin and the end
  double score = 0;                  // log-probability / length^penalty
  bool ended = false;                // the end was said; else it was cut off
  // Where each token, and the end where it was said, looked in the source:
  // [tokens + 1, source length]. Empty where nobody asked.
  std::vector<std::vector<float>> alignment;
};

// Beam search as fairseq has it. A step looks at the 2 * beam best
// continuations of a source's hypotheses; an end among the first `beam` is a
// finished sentence, the first `beam` that do not end go on. A source is done
// with `beam` finished sentences, or at max_length, where what is open counts
// as finished.
//
// State has the functions of nn::DecoderState. It has one hypothesis for each
// source and has read nothing.
template <typename State>
class BeamSearch {
 public:
  BeamSearch(State& state, const SearchOptions& options)
      : state_(state), options_(options) {
    const auto sources = static_cast<std::size_t>(state.hypotheses());
    results_.resize(sources);
    for (std::size_t s = 0; s < sources; ++s) {
      open_.push_back({static_cast<std::int64_t>(s), -1, 0.0});
    }
  }

  // The finished sentences of each source, best first: at most `beam`.
  std::vector<std::vector<Hypothesis>> operator()() {
    std::vector<std::int32_t> tokens(open_.size(), options_.begin);
    for (length_ = 0; !open_.empty(); ++length_) {
      state_.step(tokens);
      look_up();
      const bool given = length_ == 0 && options_.first >= 0;
      tokens = given ? say_first() : advance();
    }
    for (auto& finished : results_) {
      std::stable_sort(finished.begin(), finished.end(),
                       [](const Hypothesis& a, const Hypothesis& b) {
                         return a.score > b.score;
                       });
      const auto beam = static_cast<std::size_t>(options_.beam);
      if (finished.size() > beam) finished.resize(beam);
    }
    return std::move(results_);
  }

 private:
  struct Node {  // a token said, and what was said before
    std::int64_t before;
    std::int32_t token;
    std::vector<float> looked;
  };
  struct Open {
    std::int64_t source;
    std::int64_t node;  // the last one; -1 for none
    double score;
  };
  struct Candidate {
    std::int64_t row;
    std::int32_t token;
    double score;
  };

  // More than needed, because those never said, and not again, may be among
  // them.
  std::int64_t width() const {
    return std::min(
        2 * options_.beam + std::ssize(options_.never) + most_repeats_,
        options_.vocab);
  }

  // What would end a run of tokens that a hypothesis has said already.
  std::vector<std::int32_t> repeats_of(const Open& open) const {
    if (options_.no_repeat_ngram == 0) return {};
    const std::ptrdiff_t before = options_.no_repeat_ngram - 1;
    const std::vector<std::int32_t> said = said_by(open);
    std::vector<std::int32_t> found;
    for (auto at = said.begin(); said.end() - at > before; ++at) {
      if (std::equal(said.end() - before, said.end(), at)) {
        found.push_back(at[before]);
      }
    }
    return found;
  }

  void look_up() {
    const std::int64_t rows = state_.hypotheses();
    repeats_.clear();
    most_repeats_ = 0;
    for (const Open& open : open_) {
      repeats_.push_back(repeats_of(open));
      most_repeats_ = std::max(most_repeats_, std::ssize(repeats_.back()));
    }
    tokens_ = Tensor(DType::kInt32, {rows, width()});
    scores_ = Tensor({rows, width()});
    state_.best(width(), tokens_.view<std::int32_t, 2>(),
                scores_.view<float, 2>());
    if (options_.align_layer < 0) return;
    std::int64_t longest = 0;
    for (std::size_t s = 0; s < results_.size(); ++s) {
      longest =
          std::max(longest, state_.source_length(static_cast<std::int64_t>(s)));
    }
    looked_ = Tensor({rows, longest});
    state_.cross_attention(options_.align_layer, looked_.view<float, 2>());
  }

  // The 2 * beam best continuations of rows [begin, end), best first.
  std::vector<Candidate> candidates(std::int64_t begin, std::int64_t end) {
    std::vector<Candidate> all;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int32_t* tokens = tokens_.view<std::int32_t, 2>().at(row);
      const float* scores = scores_.view<float, 2>().at(row);
      for (std::int64_t k = 0; k < width(); ++k) {
        require(!std::isnan(scores[k]), "BeamSearch",
                "the model's scores must be numbers; they are not. Are its "
                "weights damaged?");
        const auto has = [token = tokens[k]](const auto& list) {
          return std::find(list.begin(), list.end(), token) != list.end();
        };
        if (has(options_.never) ||
            has(repeats_[static_cast<std::size_t>(row)])) {
          continue;
        }
        all.push_back({row, tokens[k],
                       open_[static_cast<std::size_t>(row)].score + scores[k]});
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.score > b.score;
                     });
    const auto most = static_cast<std::size_t>(2 * options_.beam);
    if (all.size() > most) all.resize(most);
    return all;
  }

  // The one choice there is costs nothing.
  std::vector<std::int32_t> say_first() {
    for (std::size_t row = 0; row < open_.size(); ++row) {
      open_[row] = say(open_[row].source,
                       {static_cast<std::int64_t>(row), options_.first, 0.0});
    }
    return std::vector<std::int32_t>(open_.size(), options_.first);
  }

  // Moves every source one token on; returns what the hypotheses read next.
  std::vector<std::int32_t> advance() {
    std::vector<Open> next;
    std::vector<std::int64_t> parents;
    std::vector<std::int32_t> tokens;
    const auto rows = static_cast<std::int64_t>(open_.size());
    for (std::int64_t begin = 0; begin < rows;) {
      const std::int64_t source = open_[static_cast<std::size_t>(begin)].source;
      std::int64_t end = begin;
      while (end < rows &&
             open_[static_cast<std::size_t>(end)].source == source) {
        ++end;
      }
      const std::vector<Candidate> best = candidates(begin, end);
      const std::size_t first = next.size();
      for (std::size_t rank = 0; rank < best.size(); ++rank) {
        const Candidate& candidate = best[rank];
        const bool in_beam = rank < static_cast<std::size_t>(options_.beam);
        if (candidate.token == options_.end) {
          if (in_beam) finish(source, candidate);
        } else if (next.size() - first <
                   static_cast<std::size_t>(options_.beam)) {
          next.push_back(say(source, candidate));
          parents.push_back(candidate.row);
          tokens.push_back(candidate.token);
        }
      }
      if (is_done(source)) {
        if (length_ + 1 >= max_length(source)) {
          for (std::size_t i = first; i < next.size(); ++i) cut_off(next[i]);
        }
        next.resize(first);
        parents.resize(first);
        tokens.resize(first);
      }
      begin = end;
    }
    open_ = std::move(next);
    if (!open_.empty()) state_.reorder(parents);
    return tokens;
  }

  std::int64_t max_length(std::int64_t source) const {
    const std::int64_t wanted = options_.max_length > 0
                                    ? options_.max_length
                                    : 2 * state_.source_length(source) + 20;
    return std::min(wanted, options_.limit);
  }

  bool is_done(std::int64_t source) const {
    return static_cast<std::int64_t>(
               results_[static_cast<std::size_t>(source)].size()) >=
               options_.beam ||
           length_ + 1 >= max_length(source);
  }

  std::vector<float> looked_by(std::int64_t row, std::int64_t source) const {
    if (options_.align_layer < 0) return {};
    const float* weights = looked_.view<float, 2>().at(row);
    return {weights, weights + state_.source_length(source)};
  }

  Open say(std::int64_t source, const Candidate& candidate) {
    nodes_.push_back({open_[static_cast<std::size_t>(candidate.row)].node,
                      candidate.token, looked_by(candidate.row, source)});
    return {source, static_cast<std::int64_t>(nodes_.size()) - 1,
            candidate.score};
  }

  void finish(std::int64_t source, const Candidate& candidate) {
    Hypothesis done = written(open_[static_cast<std::size_t>(candidate.row)]);
    done.ended = true;
    if (options_.align_layer >= 0) {
      done.alignment.push_back(looked_by(candidate.row, source));
    }
    keep(source, std::move(done), candidate.score);
  }

  void cut_off(const Open& open) {
    keep(open.source, written(open), open.score);
  }

  // The end counts as a token, as it has a probability too.
  void keep(std::int64_t source, Hypothesis done, double score) {
    done.score = score / std::pow(static_cast<double>(length_ + 1),
                                  options_.length_penalty);
    results_[static_cast<std::size_t>(source)].push_back(std::move(done));
  }

  std::vector<std::int32_t> said_by(const Open& open) const {
    std::vector<std::int32_t> tokens;
    for (std::int64_t at = open.node; at >= 0;) {
      const Node& node = nodes_[static_cast<std::size_t>(at)];
      tokens.push_back(node.token);
      at = node.before;
    }
    std::reverse(tokens.begin(), tokens.end());
    return tokens;
  }

  Hypothesis written(const Open& open) const {
    Hypothesis done;
    done.tokens = said_by(open);
    if (options_.align_layer < 0) return done;
    for (std::int64_t at = open.node; at >= 0;) {
      const Node& node = nodes_[static_cast<std::size_t>(at)];
      done.alignment.push_back(node.looked);
      at = node.before;
    }
    std::reverse(done.alignment.begin(), done.alignment.end());
    return done;
  }

  State& state_;
  SearchOptions options_;
  std::int64_t length_ = 0;  // tokens said by every open hypothesis
  std::vector<Open> open_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Hypothesis>> results_;
  std::vector<std::vector<std::int32_t>> repeats_;  // [hypotheses]
  std::ptrdiff_t most_repeats_ = 0;
  Tensor tokens_;  // [hypotheses, width]
  Tensor scores_;
  Tensor looked_;  // [hypotheses, longest source]
};

}  // namespace regard::tasks
