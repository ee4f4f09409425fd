// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: by rules, or by the scores of the pieces.
#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <queue>
#include <unordered_map>

#include "text/models.h"

namespace regard::text {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // SentencePiece's
constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
// Up to here, looking at every neighbour is faster than a heap.
constexpr std::size_t kShort = 48;

// A few symbols: find the best pair, join it, and again.
void merge_few(const MergeTable& merges, std::vector<Piece>& symbols,
               std::size_t first) {
  std::array<Merge, kShort + 1> pairs;  // of symbol i and the next one
  Piece* const s = symbols.data() + first;
  std::size_t count = symbols.size() - first;
  const auto look = [&](std::size_t i) {
    const Merge* merge = merges.find(s[i].id, s[i + 1].id);
    pairs[i] = merge == nullptr ? Merge{kNever, kNone} : *merge;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNever) break;
    s[best].id = pairs[best].id;
    s[best].bytes.end = s[best + 1].bytes.end;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      s[i] = s[i + 1];
      pairs[i] = pairs[i + 1];
    }
    if (best + 1 < count) look(best);
    if (best > 0) look(best - 1);
  }
  symbols.resize(first + count);
}

// Many: the best pair is on top of a heap.
void merge_many(const MergeTable& merges, std::vector<Piece>& symbols,
                std::size_t first) {
  struct Node {
    std::int32_t before, next;
  };
  struct Pair {
    std::uint32_t rank;
    std::int32_t left;  // its place
    std::int32_t left_id, right_id, id;
    bool operator<(const Pair& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  Piece* const s = symbols.data() + first;
  const auto count = static_cast<std::int32_t>(symbols.size() - first);
  std::vector<Node> nodes(static_cast<std::size_t>(count));
  std::vector<Pair> start;
  const auto pair_at = [&](std::int32_t left, std::int32_t right, auto& to) {
    if (const Merge* merge = merges.find(s[left].id, s[right].id)) {
      to.push({merge->rank, left, s[left].id, s[right].id, merge->id});
    }
  };
  struct Start {
    std::vector<Pair>& pairs;
    void push(const Pair& pair) { pairs.push_back(pair); }
  } collect{start};
  for (std::int32_t i = 0; i < count; ++i) {
    nodes[static_cast<std::size_t>(i)] = {i - 1, i + 1 < count ? i + 1 : kNone};
    if (i + 1 < count) pair_at(i, i + 1, collect);
  }
  std::priority_queue<Pair> pairs(std::less<Pair>(), std::move(start));
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    Node& left = nodes[static_cast<std::size_t>(pair.left)];
    // One of the two may have been joined with another since.
    if (s[pair.left].id != pair.left_id || left.next == kNone ||
        s[left.next].id != pair.right_id) {
      continue;
    }
    const std::int32_t gone = left.next;
    s[pair.left].id = pair.id;
    s[pair.left].bytes.end = s[gone].bytes.end;
    s[gone].id = kNone;
    left.next = nodes[static_cast<std::size_t>(gone)].next;
    if (left.next != kNone) {
      nodes[static_cast<std::size_t>(left.next)].before = pair.left;
      pair_at(pair.left, left.next, pairs);
    }
    if (left.before != kNone) pair_at(left.before, pair.left, pairs);
  }
  std::erase_if(symbols, [](const Piece& piece) { return piece.id == kNone; });
}

void merge_all(const MergeTable& merges, std::vector<Piece>& symbols,
               std::size_t first) {
  if (symbols.size() - first <= kShort) {
    merge_few(merges, symbols, first);
  } else {
    merge_many(merges, symbols, first);
  }
}

// Would a rule for these two join a word with the blank after it? Where none
// does, each part of a text from blanks to blanks can be done alone, which is
// faster than the whole at once.
bool crosses_blank(std::string_view left, std::string_view right) {
  return right.starts_with(kBlank) && !left.ends_with(kBlank);
}

template <typename Visit>
void for_each_part(std::string_view word, const Visit& visit) {
  std::size_t begin = 0;
  for (std::size_t at = word.find(kBlank, 1); at != std::string_view::npos;
       at = word.find(kBlank, at + 1)) {
    if (crosses_blank(word.substr(0, at), word.substr(at))) {
      visit(begin, at);
      begin = at;
    }
  }
  visit(begin, word.size());
}

class Bpe : public Model {
 public:
  Bpe(const Vocabulary& vocabulary, const std::vector<MergeRule>& rules,
      const BpeOptions& options)
      : options_(options), merges_(rules.size()) {
    for (const MergeRule& rule : rules) {
      merges_.insert(rule.left, rule.right, rule.merge);
    }
    if (options.byte_level) {
      words_ = PieceTable(static_cast<std::size_t>(vocabulary.size()));
      for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
        if (const auto bytes = byte_level_bytes(vocabulary.piece(id))) {
          if (!bytes->empty()) words_.insert(*bytes, id);
        }
      }
    }
    ids_ = options.byte_level ? &words_ : nullptr;
    vocabulary_ = &vocabulary;
    for (unsigned i = 0; i < 256; ++i) {
      const auto byte = static_cast<unsigned char>(i);
      const char c = static_cast<char>(byte);
      bytes_[i] = options.byte_level      ? words_.find({&c, 1})
                  : options.byte_fallback ? vocabulary.find(byte_piece(byte))
                                          : kNone;
    }
    whole_ = std::vector<std::atomic<std::uint8_t>>(
        static_cast<std::size_t>(vocabulary.size()));
    cut_at_blanks_ =
        !options.byte_level && vocabulary.find(kBlank) != kNone &&
        options.prefix.empty() && options.suffix.empty() &&
        std::none_of(rules.begin(), rules.end(), [&](const MergeRule& rule) {
          return crosses_blank(vocabulary.piece(rule.left),
                               vocabulary.piece(rule.right));
        });
  }

  void encode(std::string_view word, std::vector<Piece>& out) const override {
    if (options_.ignore_merges) {
      if (const std::int32_t id = find(word); id != kNone) {
        out.push_back({id, {0, static_cast<std::uint32_t>(word.size())}});
        return;
      }
    }
    if (!cut_at_blanks_) return encode_part(word, 0, out);
    for_each_part(word, [&](std::size_t begin, std::size_t end) {
      encode_part(word.substr(begin, end - begin), begin, out);
    });
  }

 private:
  // What is known of a piece: whether its own text becomes it.
  enum Whole : std::uint8_t { kUnasked, kBecomes, kDoesNot };

  std::int32_t find(std::string_view piece) const {
    return ids_ != nullptr ? ids_->find(piece) : vocabulary_->find(piece);
  }

  void encode_part(std::string_view part, std::size_t base,
                   std::vector<Piece>& out) const {
    const std::size_t first = out.size();
    const auto shift = static_cast<std::uint32_t>(base);
    const bool plain = options_.prefix.empty() && options_.suffix.empty();
    const std::int32_t whole = plain ? find(part) : kNone;
    std::uint8_t known = kDoesNot;
    if (whole != kNone) {
      known = whole_[static_cast<std::size_t>(whole)].load(
          std::memory_order_relaxed);
    }
    if (known == kBecomes) {
      out.push_back(
          {whole, {shift, shift + static_cast<std::uint32_t>(part.size())}});
      return;
    }
    if (options_.byte_level) {
      start_with_bytes(part, out);
    } else {
      start_with_chars(part, out);
    }
    merge_all(merges_, out, first);
    if (known == kUnasked) {
      const bool becomes = out.size() == first + 1 && out[first].id == whole;
      whole_[static_cast<std::size_t>(whole)].store(
          becomes ? kBecomes : kDoesNot, std::memory_order_relaxed);
    }
    for (std::size_t i = first; shift != 0 && i < out.size(); ++i) {
      out[i].bytes = {out[i].bytes.begin + shift, out[i].bytes.end + shift};
    }
  }

  void start_with_bytes(std::string_view part, std::vector<Piece>& out) const {
    Unknown unknown;
    for (std::uint32_t i = 0; i < part.size(); ++i) {
      const std::int32_t id = bytes_[static_cast<unsigned char>(part[i])];
      if (id == kNone) {
        add_unknown(unknown, {i, i + 1}, out);
      } else {
        flush(unknown, out);
        out.push_back({id, {i, i + 1}});
      }
    }
    flush(unknown, out);
  }

  void start_with_chars(std::string_view part, std::vector<Piece>& out) const {
    Unknown unknown;
    std::string written;
    for (std::uint32_t at = 0; at < part.size();) {
      const std::uint32_t end = at + decode_first(part.substr(at)).length;
      const std::string_view c = part.substr(at, end - at);
      std::string_view key = c;
      const bool inner = at > 0 && !options_.prefix.empty();
      const bool last = end == part.size() && !options_.suffix.empty();
      if (inner || last) {
        written = inner ? options_.prefix : "";
        written += c;
        if (last) written += options_.suffix;
        key = written;
      }
      const Range bytes{at, end};
      at = end;
      if (const std::int32_t id = vocabulary_->find(key); id != kNone) {
        flush(unknown, out);
        out.push_back({id, bytes});
      } else if (std::all_of(key.begin(), key.end(), [this](char b) {
                   return bytes_[static_cast<unsigned char>(b)] != kNone;
                 })) {
        flush(unknown, out);
        std::uint32_t place = bytes.begin;
        for (const char b : key) {
          const std::uint32_t next = std::min(place + 1, bytes.end);
          out.push_back({bytes_[static_cast<unsigned char>(b)], {place, next}});
          place = next;
        }
      } else {
        add_unknown(unknown, bytes, out);
      }
    }
    flush(unknown, out);
  }

  // Unknown characters side by side may become one piece.
  struct Unknown {
    bool pending = false;
    Range bytes;
  };
  void add_unknown(Unknown& unknown, Range bytes,
                   std::vector<Piece>& out) const {
    if (options_.unknown == kNone) return;
    if (unknown.pending && options_.fuse_unknown) {
      unknown.bytes.end = bytes.end;
      return;
    }
    flush(unknown, out);
    unknown = {true, bytes};
  }
  void flush(Unknown& unknown, std::vector<Piece>& out) const {
    if (unknown.pending) out.push_back({options_.unknown, unknown.bytes});
    unknown.pending = false;
  }

  BpeOptions options_;
  const Vocabulary* vocabulary_;
  PieceTable words_;       // by bytes, where byte_level
  const PieceTable* ids_;  // words_, or null for the vocabulary's own
  MergeTable merges_;
  std::array<std::int32_t, 256> bytes_{};
  // Most words of a text are a piece: after the first time, that is enough.
  mutable std::vector<std::atomic<std::uint8_t>> whole_;
  bool cut_at_blanks_ = false;
};

// Symbols are pieces, and beyond them characters that only occur inside of
// pieces, and user-defined pieces as they stand in a text, which join nothing.
class ScoreBpe : public Model {
 public:
  ScoreBpe(const Vocabulary& vocabulary, const std::vector<double>& scores,
           const UnigramOptions& options)
      : unknown_(options.unknown), size_(vocabulary.size()) {
    const auto is = [](const std::vector<bool>& flags, std::int32_t id) {
      const auto i = static_cast<std::size_t>(id);
      return i < flags.size() && flags[i];
    };
    symbols_ = PieceTable(static_cast<std::size_t>(size_));
    std::vector<Trie::Entry> user_defined;
    std::vector<double> ranks;
    for (std::int32_t id = 0; id < size_; ++id) {
      if (is(options.hidden, id)) continue;
      symbols_.insert(vocabulary.piece(id), id);
      ranks.push_back(scores[static_cast<std::size_t>(id)]);
      if (is(options.user_defined, id)) {
        user_defined.push_back({vocabulary.piece(id), id});
      }
    }
    std::sort(ranks.begin(), ranks.end(), std::greater<double>());
    user_defined_ = Trie(std::move(user_defined));
    for (unsigned i = 0; i < 256; ++i) {
      bytes_[i] =
          options.byte_fallback
              ? vocabulary.find(byte_piece(static_cast<unsigned char>(i)))
              : kNone;
    }
    cut_at_blanks_ = symbols_.find(kBlank) != kNone;
    next_ = size_;
    for (std::int32_t id = 0; id < size_; ++id) {
      if (is(options.hidden, id)) continue;
      if (symbols_.find(vocabulary.piece(id)) != id) continue;  // comes twice
      cut_at_blanks_ = cut_at_blanks_ && !(is(options.user_defined, id) &&
                                           vocabulary.piece(id).find(
                                               kBlank, 1) != std::string::npos);
      const auto rank = static_cast<std::uint32_t>(
          std::lower_bound(ranks.begin(), ranks.end(),
                           scores[static_cast<std::size_t>(id)],
                           std::greater<double>()) -
          ranks.begin());
      add_rules(vocabulary.piece(id), {rank, id});
    }
  }

  void encode(std::string_view word, std::vector<Piece>& out) const override {
    if (!cut_at_blanks_) return encode_part(word, 0, out);
    for_each_part(word, [&](std::size_t begin, std::size_t end) {
      encode_part(word.substr(begin, end - begin), begin, out);
    });
  }

 private:
  static constexpr std::int32_t kOther = std::numeric_limits<int>::max();

  // Every pair of symbols that makes the piece.
  void add_rules(std::string_view piece, Merge merge) {
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t length = decode_first(piece.substr(at)).length;
      const std::string_view c = piece.substr(at, length);
      if (symbols_.find(c) == kNone) symbols_.insert(c, next_++);
      at += length;
    }
    for (std::size_t at = 0; at < piece.size();) {
      at += decode_first(piece.substr(at)).length;
      if (at >= piece.size()) break;
      const std::int32_t left = symbols_.find(piece.substr(0, at));
      const std::int32_t right = symbols_.find(piece.substr(at));
      if (left == kNone || right == kNone) continue;
      merges_.insert(left, right, merge);
      cut_at_blanks_ = cut_at_blanks_ &&
                       !crosses_blank(piece.substr(0, at), piece.substr(at));
    }
  }

  void encode_part(std::string_view part, std::size_t base,
                   std::vector<Piece>& out) const {
    const std::size_t first = out.size();
    for (std::size_t at = 0; at < part.size();) {
      const Trie::Found found = user_defined_.longest(part.substr(at));
      std::size_t length = found.length;
      std::int32_t id = -2 - found.id;
      if (found.id == kNone) {
        length = std::min<std::size_t>(decode_first(part.substr(at)).length,
                                       part.size() - at);
        id = symbols_.find(part.substr(at, length));
        if (id == kNone) id = kOther;
      }
      out.push_back({id,
                     {static_cast<std::uint32_t>(base + at),
                      static_cast<std::uint32_t>(base + at + length)}});
      at += length;
    }
    merge_all(merges_, out, first);
    name(part, base, out, first);
  }

  // The numbers of pieces for those of symbols.
  void name(std::string_view part, std::size_t base, std::vector<Piece>& out,
            std::size_t first) const {
    if (std::all_of(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
                    [this](const Piece& piece) {
                      return piece.id >= 0 && piece.id < size_;
                    })) {
      return;
    }
    const std::vector<Piece> symbols(
        out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
    out.resize(first);
    for (Piece symbol : symbols) {
      const auto text = part.substr(symbol.bytes.begin - base,
                                    symbol.bytes.end - symbol.bytes.begin);
      if (symbol.id < 0) {
        symbol.id = -2 - symbol.id;
      } else if (symbol.id >= size_) {
        if (std::all_of(text.begin(), text.end(), [this](char c) {
              return bytes_[static_cast<unsigned char>(c)] != kNone;
            })) {
          std::uint32_t place = symbol.bytes.begin;
          for (const char c : text) {
            out.push_back(
                {bytes_[static_cast<unsigned char>(c)], {place, place + 1}});
            ++place;
          }
          continue;
        }
        symbol.id = unknown_;
        // Unknown ones side by side are one piece.
        if (out.size() > first && out.back().id == unknown_) {
          out.back().bytes.end = symbol.bytes.end;
          continue;
        }
      }
      out.push_back(symbol);
    }
  }

  std::int32_t unknown_, size_, next_ = 0;
  PieceTable symbols_;
  Trie user_defined_;
  MergeTable merges_;
  std::array<std::int32_t, 256> bytes_{};
  bool cut_at_blanks_ = false;
};

}  // namespace

std::unique_ptr<Model> make_score_bpe(const Vocabulary& vocabulary,
                                      const std::vector<double>& scores,
                                      const UnigramOptions& options) {
  return std::make_unique<ScoreBpe>(vocabulary, scores, options);
}

std::unique_ptr<Model> make_bpe(const Vocabulary& vocabulary,
                                const std::vector<MergeRule>& rules,
                                const BpeOptions& options) {
  return std::make_unique<Bpe>(vocabulary, rules, options);
}

}  // namespace regard::text
