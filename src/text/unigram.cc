// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>

#include "text/models.h"

namespace regard::text {
namespace {

constexpr double kUnknownPenalty = 10;

template <typename Sum>
class Unigram : public Model {
 public:
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores,
          const UnigramOptions& options)
      : vocabulary_(vocabulary), options_(options) {
    const auto is = [](const std::vector<bool>& flags, std::size_t i) {
      return i < flags.size() && flags[i];
    };
    double least = std::numeric_limits<double>::infinity();
    std::vector<Trie::Entry> entries;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (is(options.hidden, i)) continue;
      const auto id = static_cast<std::int32_t>(i);
      entries.push_back({vocabulary.piece(id), id});
      if (is(options.user_defined, i)) continue;
      least = std::min(least, scores[i]);
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
      // So high that another way to write it seldom wins, and never if it has
      // the same ends; measured on SentencePiece 0.2.2.
      if (is(options.user_defined, i)) {
        const auto length = static_cast<double>(
            vocabulary.piece(static_cast<std::int32_t>(i)).size());
        scores[i] = 0.1 * (length - 1);
      }
      scores_.push_back(static_cast<Sum>(scores[i]));
    }
    trie_ = Trie(std::move(entries));
    unknown_score_ = static_cast<Sum>(static_cast<Sum>(least) -
                                      static_cast<Sum>(kUnknownPenalty));
    for (unsigned i = 0; i < 256; ++i) {
      bytes_[i] =
          options.byte_fallback
              ? vocabulary.find(byte_piece(static_cast<unsigned char>(i)))
              : kNone;
    }
  }

  void encode(std::string_view word, std::vector<Piece>& out) const override {
    std::vector<Node> best(word.size() + 1);
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = std::min<std::size_t>(
          decode_first(word.substr(at)).length, word.size() - at);
      bool single = false;
      Trie::Node node = Trie::kRoot;
      for (std::size_t end = at; end < word.size();) {
        node = trie_.step(node, word[end++]);
        if (node == Trie::kNowhere) break;
        const std::int32_t id = trie_.id(node);
        if (id == kNone) continue;
        single = single || end - at == length;
        best[end].offer(id, at,
                        best[at].sum + scores_[static_cast<std::size_t>(id)]);
      }
      if (!single) {
        best[at + length].offer(options_.unknown, at,
                                best[at].sum + unknown_score_);
      }
      at += length;
    }
    // Backwards; what is unknown side by side becomes one piece.
    const std::size_t first = out.size();
    for (std::size_t end = word.size(); end > 0;) {
      const Node& node = best[end];
      const Range bytes{static_cast<std::uint32_t>(node.begin),
                        static_cast<std::uint32_t>(end)};
      if (node.id == options_.unknown && out.size() > first &&
          out.back().id == options_.unknown) {
        out.back().bytes.begin = bytes.begin;
      } else {
        out.push_back({node.id, bytes});
      }
      end = node.begin;
    }
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
    name_the_unknown(word, out, first);
  }

 private:
  struct Node {
    std::int32_t id = kNone;
    std::size_t begin = static_cast<std::size_t>(-1);
    Sum sum = 0;

    void offer(std::int32_t piece, std::size_t from, Sum total) {
      if (begin != static_cast<std::size_t>(-1) && !(total > sum)) return;
      *this = {piece, from, total};
    }
  };

  // Joined, the unknown may be a piece after all; or it becomes its bytes.
  void name_the_unknown(std::string_view word, std::vector<Piece>& out,
                        std::size_t first) const {
    if (std::none_of(out.begin() + static_cast<std::ptrdiff_t>(first),
                     out.end(), [this](const Piece& piece) {
                       return piece.id == options_.unknown;
                     })) {
      return;
    }
    std::vector<Piece> named;
    for (std::size_t i = first; i < out.size(); ++i) {
      Piece piece = out[i];
      if (piece.id == options_.unknown) {
        const auto text =
            word.substr(piece.bytes.begin, piece.bytes.end - piece.bytes.begin);
        const std::int32_t id =
            options_.float_sums ? kNone : vocabulary_.find(text);
        if (id != kNone) {
          piece.id = id;
        } else if (std::all_of(text.begin(), text.end(), [this](char c) {
                     return bytes_[static_cast<unsigned char>(c)] != kNone;
                   })) {
          for (std::uint32_t b = piece.bytes.begin; b < piece.bytes.end; ++b) {
            named.push_back(
                {bytes_[static_cast<unsigned char>(word[b])], {b, b + 1}});
          }
          continue;
        }
      }
      // Without a piece for what is unknown, it is left out.
      if (piece.id != kNone) named.push_back(piece);
    }
    out.resize(first);
    out.insert(out.end(), named.begin(), named.end());
  }

  const Vocabulary& vocabulary_;
  UnigramOptions options_;
  std::vector<Sum> scores_;
  Sum unknown_score_ = 0;
  Trie trie_;
  std::array<std::int32_t, 256> bytes_{};
};

}  // namespace

std::unique_ptr<Model> make_unigram(const Vocabulary& vocabulary,
                                    std::vector<double> scores,
                                    const UnigramOptions& options) {
  if (options.float_sums) {
    return std::make_unique<Unigram<float>>(vocabulary, std::move(scores),
                                            options);
  }
  return std::make_unique<Unigram<double>>(vocabulary, std::move(scores),
                                           options);
}

}  // namespace regard::text
