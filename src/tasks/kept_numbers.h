// SPDX-License-Identifier: Apache-2.0
// Numbers that a translation must have as the source has them: "25.50",
// "14:30", "555-0199". A small model writes another one from time to time, and
// a wrong number is worse than a clumsy sentence. Where one is lost, the
// sentence is translated again with a number in its place that the model knows
// well, and the translation gets the right one back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/tokenizer.h"

namespace regard::tasks {

// Those with a decimal point or another sign between digits, and whole numbers
// of four digits or more. Not those that other languages write in words: round
// ones (25,000), and those that a word or character multiplies (2.5 million).
// Nor what is part of an address.
std::vector<text::ByteRange> find_kept_numbers(std::string_view sentence);

// Whether the translation has all of them; commas between thousands do not
// matter, and a time may be said as Chinese says it.
bool has_kept_numbers(std::string_view sentence,
                      const std::vector<text::ByteRange>& numbers,
                      std::string_view translation);

// A sentence with stand-ins in the place of its numbers.
class NumberStandIns {
 public:
  // Kinds of stand-ins, from those that read best to the surest: addresses,
  // which are always copied.
  static constexpr int kKinds = 4;

  // None where the sentence has more numbers than there are stand-ins.
  static std::optional<NumberStandIns> make(
      std::string_view sentence, const std::vector<text::ByteRange>& numbers,
      int kind);

  const std::string& sentence() const { return sentence_; }
  // The translation of sentence() with the numbers; none where it does not have
  // each stand-in once.
  std::optional<std::string> put_back(std::string translation) const;

 private:
  struct Pair {
    std::string stand_in, number;
  };
  std::string sentence_;
  std::vector<Pair> pairs_;
};

}  // namespace regard::tasks
