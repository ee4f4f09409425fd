// SPDX-License-Identifier: Apache-2.0
// Reviews of one to three clauses. Each clause praises or complains, and may
// say so by denying the contrary; a review of both kinds of clauses is mixed.
// So single words do not tell the label: "not" turns what follows around.
#include <array>
#include <cctype>
#include <set>
#include <string>

#include "tasks/samples.h"

namespace regard::tasks {
namespace {

constexpr std::array kThings = {
    "the food",       "the soup",          "the service",   "the waiter",
    "the room",       "the bed",           "the breakfast", "the view",
    "the staff",      "the price",         "the film",      "the plot",
    "the ending",     "the music",         "the acting",    "the book",
    "the story",      "the first chapter", "the cover",     "the hotel",
    "the restaurant", "the pizza",         "the coffee",    "the dessert",
    "the actor",      "the author",        "the place",     "the garden"};
constexpr std::array kGood = {
    "good",      "great",      "wonderful", "lovely",   "excellent",
    "fantastic", "delightful", "brilliant", "charming", "perfect",
    "superb",    "nice",       "amazing",   "pleasant", "beautiful"};
constexpr std::array kBad = {
    "bad",        "awful", "terrible", "boring",        "horrible",
    "poor",       "dull",  "dreadful", "disappointing", "ugly",
    "unpleasant", "weak",  "annoying", "disgusting",    "mediocre"};
constexpr std::array kVery = {"very ",   "really ", "so ",    "quite ",
                              "simply ", "rather ", "truly ", "",
                              "",        "",        ""};
constexpr std::array kNot = {"was not ",          "was far from ",
                             "was anything but ", "was never ",
                             "was not at all ",   "was hardly "};
constexpr std::array kLoved = {"loved", "liked", "enjoyed", "adored"};
constexpr std::array kHated = {"hated", "disliked", "regretted", "loathed"};
constexpr std::array kDidNot = {"did not ", "could not ", "never "};
constexpr std::array kLove = {"love", "like", "enjoy", "recommend"};
constexpr std::array kStarts = {"",           "",           "",
                                "honestly, ", "last week ", "in my opinion ",
                                "as always ", "this time "};
constexpr std::array kJoins = {" and ", ", ", ". ", ", and "};
constexpr std::array kTurns = {", but ", " although ", ", yet ",
                               " even though ", ". however, "};

std::string text_of(std::string_view a, std::string_view b = "",
                    std::string_view c = "", std::string_view d = "") {
  std::string text(a);
  for (const std::string_view part : {b, c, d}) text += part;
  return text;
}

std::string clause(Random& random, bool praises) {
  const std::string thing(any_of(random, kThings));
  const auto& right = praises ? kGood : kBad;
  const auto& wrong = praises ? kBad : kGood;
  switch (random.below(8)) {
    case 0:
    case 1:
    case 2:
      return text_of(thing, " was ", any_of(random, kVery),
                     any_of(random, right));
    case 3:
    case 4:
      return text_of(thing, " ", any_of(random, kNot), any_of(random, wrong));
    case 5:
      return praises ? text_of("i ", any_of(random, kLoved), " ", thing)
                     : text_of("i ", any_of(random, kHated), " ", thing);
    case 6:
      if (!praises) {
        return text_of(text_of("i ", any_of(random, kDidNot)),
                       any_of(random, kLove), " ", thing);
      }
      return text_of(
          text_of("i could not find anything ", any_of(random, kBad)),
          " about ", thing);
    default:
      return praises ? text_of(thing, " could not have been better")
                     : text_of(thing, " could have been better");
  }
}

// Capitals where sentences begin, and a full stop.
std::string as_written(std::string text) {
  bool begins = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (begins && text[i] != ' ') {
      text[i] = static_cast<char>(std::toupper(text[i]));
      begins = false;
    }
    if (text[i] == '.') begins = true;
    const bool alone = text[i] == 'i' && (i == 0 || text[i - 1] == ' ') &&
                       i + 1 < text.size() && text[i + 1] == ' ';
    if (alone) text[i] = 'I';
  }
  return text + ".";
}

struct Review {
  std::string text, label;
};

Review review(Random& random) {
  const std::int64_t clauses = 1 + random.below(3);
  std::string text(any_of(random, kStarts));
  bool praised = false;
  bool complained = false;
  bool last = false;
  for (std::int64_t c = 0; c < clauses; ++c) {
    const bool praises = random.below(2) == 0;
    if (c > 0) {
      text += praises == last ? any_of(random, kJoins) : any_of(random, kTurns);
    }
    text += clause(random, praises);
    (praises ? praised : complained) = true;
    last = praises;
  }
  return {as_written(text), praised && complained ? "mixed"
                            : praised             ? "positive"
                                                  : "negative"};
}

constexpr const char* kReadme =
    R"(# Reviews: a sample for `regard train classify`

Made up by the rules of `regard sample classify`: reviews of one to three
clauses that praise or complain, some of them by denying the contrary. A review
that does both is `mixed`. Free to use for anything.

    regard train classify --train train.tsv --valid valid.tsv --out model \
        --dim 64 --ffn 128 --lr 0.003 --updates 1200
    regard classify --model model --input test.tsv --score
    regard classify --model model --explain "The food was far from bad."
)";

}  // namespace

std::vector<SampleFile> sample_reviews(std::uint64_t seed) {
  Random random(seed);
  std::set<std::string> seen;
  const auto file = [&](const char* name, int count) {
    std::string text = "text\tlabel\n";
    while (count > 0) {
      const Review next = review(random);
      if (!seen.insert(next.text).second) continue;
      text += next.text + "\t" + next.label + "\n";
      --count;
    }
    return SampleFile{name, std::move(text)};
  };
  std::vector<SampleFile> files;
  files.push_back(file("train.tsv", 4000));
  files.push_back(file("valid.tsv", 500));
  files.push_back(file("test.tsv", 500));
  files.push_back({"README.md", kReadme});
  return files;
}

}  // namespace regard::tasks
