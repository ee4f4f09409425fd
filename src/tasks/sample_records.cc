// SPDX-License-Identifier: Apache-2.0
// Registers of people: where and when they were born, what they do, where they
// live. Each has a question whose answer stands in it, word by word, beside the
// same facts about others.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "json/json.h"

#include "tasks/samples.h"

namespace regard::tasks {
namespace {

constexpr std::array kFirst = {
    "Ada",  "Ben",  "Clara", "David", "Emma", "Felix", "Greta", "Hugo",
    "Ines", "Jon",  "Karin", "Leo",   "Mara", "Nils",  "Olga",  "Paul",
    "Rosa", "Stig", "Tilda", "Uwe",   "Vera", "Wim",   "Yara",  "Zeno"};
constexpr std::array kLast = {
    "Ashdown", "Brandt", "Corliss", "Dahl",   "Engel",   "Fenwick",
    "Graves",  "Holt",   "Ivers",   "Jansen", "Keller",  "Lind",
    "Marlow",  "Norris", "Oakes",   "Palmer", "Quist",   "Rowe",
    "Sutter",  "Thorne", "Ulrich",  "Vance",  "Whitlow", "York"};
constexpr std::array kTownStart = {"Alder", "Birch", "Copper", "Dun",
                                   "Elm",   "Fair",  "Green",  "Hazel",
                                   "Iron",  "Kel",   "Lark",   "Mill"};
constexpr std::array kTownEnd = {"brook", "bury", "field", "ford", "gate",
                                 "ham",   "ley",  "moor",  "ton",  "wick"};
constexpr std::array kJobs = {"baker",  "captain", "doctor",  "farmer",
                              "judge",  "painter", "printer", "sailor",
                              "singer", "smith",   "tailor",  "teacher"};
constexpr std::array kStreets = {
    "Bridge Street", "Church Lane", "Garden Row", "High Street", "Long Acre",
    "Market Place",  "North Road",  "Oak Avenue", "Spring Hill", "Water Lane"};
constexpr std::array kFoods = {
    "apple cake",  "bean soup", "brown bread", "cold plums", "fried fish",
    "goat cheese", "onion pie", "pea stew",    "roast duck", "sweet rice"};

struct Fact {
  std::string before, value, after;  // a sentence
  std::string question;
};

// Fisher and Yates.
template <typename Element>
void shuffle(Random& random, std::vector<Element>& list) {
  for (std::int64_t i = std::ssize(list) - 1; i > 0; --i) {
    std::swap(list[static_cast<std::size_t>(i)],
              list[static_cast<std::size_t>(random.below(i + 1))]);
  }
}

std::string word(std::string_view a, std::string_view b = "") {
  return std::string(a) + std::string(b);
}

Fact fact(Random& random, const std::string& name, std::int64_t kind) {
  switch (kind) {
    case 0:
      return {name + " was born in ",
              word(any_of(random, kTownStart), any_of(random, kTownEnd)), ".",
              "Where was " + name + " born?"};
    case 1:
      return {"In ", std::to_string(1800 + random.below(200)),
              ", " + name + " came into the world.",
              "When did " + name + " come into the world?"};
    case 2:
      return {name + " works as a ", word(any_of(random, kJobs)),
              " these days.", "What does " + name + " work as?"};
    case 3:
      return {"The address of " + name + " is ",
              std::to_string(1 + random.below(99)) + " " +
                  word(any_of(random, kStreets)),
              ".", "What is the address of " + name + "?"};
    default:
      return {"Nothing tastes better to " + name + " than ",
              word(any_of(random, kFoods)), ".",
              "What tastes best to " + name + "?"};
  }
}
constexpr std::int64_t kKinds = 5;

struct Record {
  std::string context, question, answer;
  std::size_t start = 0;            // of the answer; all is ASCII
  std::vector<std::string> others;  // the same of other people, all different
};

Record record(Random& random) {
  std::vector<std::string> names;
  const std::int64_t people = 4 + random.below(5);
  while (std::ssize(names) < people) {
    const std::string name =
        word(any_of(random, kFirst), " ") + word(any_of(random, kLast));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  std::vector<Fact> facts;
  for (const std::string& name : names) {
    for (std::int64_t k = 0; k < kKinds; ++k) {
      facts.push_back(fact(random, name, k));
    }
  }
  const std::int64_t asked = random.below(std::ssize(facts));
  Record out;
  out.question = facts[static_cast<std::size_t>(asked)].question;
  out.answer = facts[static_cast<std::size_t>(asked)].value;
  std::set<std::string> different = {out.answer};
  for (std::int64_t f = asked % kKinds; f < std::ssize(facts); f += kKinds) {
    const std::string& value = facts[static_cast<std::size_t>(f)].value;
    if (different.insert(value).second) out.others.push_back(value);
  }
  shuffle(random, facts);
  for (const Fact& f : facts) {
    if (!out.context.empty()) out.context += ' ';
    if (f.question == out.question) {
      out.start = out.context.size() + f.before.size();
    }
    out.context += f.before + f.value + f.after;
  }
  return out;
}

constexpr const char* kSpansReadme =
    R"(# Registers: a sample for `regard train answer --answers spans`

Made up by the rules of `regard sample spans`: what is known of four to eight
people, in any order, and a question about one of them. The answer stands in the
text, and begins at the character `start`. Free to use for anything.

    regard train answer --answers spans --train train.tsv --valid valid.tsv \
        --out model --max-length 128 --overlap 32 --layers 2 --dim 64 --ffn 128 \
        --batch-tokens 4096 --lr 0.003 --warmup 100 --updates 700
    regard answer --model model --input test.tsv --score
    regard answer --model model --context text.txt "Where was Ada Holt born?"
)";

constexpr const char* kChoicesReadme =
    R"(# Registers: a sample for `regard train answer --answers choices`

Made up by the rules of `regard sample choices`: what is known of four to eight
people, in any order, a question about one of them, and four answers, of which
three are right for others. Free to use for anything.

    regard train answer --answers choices --train train.jsonl \
        --valid valid.jsonl --out model --max-length 128 --layers 2 --dim 64 \
        --ffn 128 --batch-tokens 4096 --lr 0.003 --warmup 100 --updates 700
    regard answer --model model --input test.jsonl --score
    regard answer --model model --context text.txt --choice Elmford \
        --choice Kelbrook "Where was Ada Holt born?"
)";

// Files of different records: `line` makes the text of one, which is empty
// where it does not serve.
template <typename Line>
std::vector<SampleFile> record_files(std::uint64_t seed, const char* end,
                                     const std::string& header,
                                     const Line& line) {
  Random random(seed);
  std::set<std::string> seen;
  std::vector<SampleFile> files;
  struct Size {
    const char* name;
    int count;
  };
  for (const Size& size :
       {Size{"train", 4000}, Size{"valid", 250}, Size{"test", 250}}) {
    std::string text = header;
    for (int left = size.count; left > 0;) {
      const Record told = record(random);
      const std::string row = line(told, random);
      if (row.empty() || !seen.insert(told.context).second) continue;
      text += row + "\n";
      --left;
    }
    files.push_back({std::string(size.name) + end, std::move(text)});
  }
  return files;
}

}  // namespace

std::vector<SampleFile> sample_spans(std::uint64_t seed) {
  auto files = record_files(seed, ".tsv", "context\tquestion\tanswer\tstart\n",
                            [](const Record& told, Random&) {
                              return told.context + "\t" + told.question +
                                     "\t" + told.answer + "\t" +
                                     std::to_string(told.start);
                            });
  files.push_back({"README.md", kSpansReadme});
  return files;
}

std::vector<SampleFile> sample_choices(std::uint64_t seed) {
  auto files =
      record_files(seed, ".jsonl", "", [](const Record& told, Random& random) {
        if (told.others.size() < 3) return std::string();
        std::vector<std::string> choices(told.others.begin(),
                                         told.others.begin() + 3);
        choices.push_back(told.answer);
        shuffle(random, choices);
        return Json{{"context", told.context},
                    {"question", told.question},
                    {"choices", choices},
                    {"answer", told.answer}}
            .dump();
      });
  files.push_back({"README.md", kChoicesReadme});
  return files;
}

}  // namespace regard::tasks
