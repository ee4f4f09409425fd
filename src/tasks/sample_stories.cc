// SPDX-License-Identifier: Apache-2.0
// Stories of people who go to places, take things and hand them on, each with a
// question. What was said last counts, so a model must know the order.
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tasks/samples.h"

namespace regard::tasks {
namespace {

constexpr std::array kPeople = {"Ada", "Ben", "Clara", "David", "Emma"};
constexpr std::array kPlaces = {"garden", "kitchen", "library",
                                "office", "station", "park"};
constexpr std::array kThings = {"apple", "book", "key", "lamp"};
constexpr std::array kGo = {" went to the ", " walked to the ",
                            " is now in the ", " ran to the "};
constexpr std::array kTake = {" took the ", " picked up the ", " found the "};
constexpr std::array kGive = {" gave the ", " handed the ", " passed the "};

struct Told {
  std::string context, question, answer;
};

Told story(Random& random) {
  std::map<std::string, std::string> place_of, owner_of;
  Told told;
  const std::int64_t sentences = 2 + random.below(6);
  for (std::int64_t s = 0; s < sentences; ++s) {
    const std::string who(any_of(random, kPeople));
    std::string sentence = who;
    const std::string thing(any_of(random, kThings));
    const auto owner = owner_of.find(thing);
    if (s == 0 || random.below(2) == 0) {
      const std::string place(any_of(random, kPlaces));
      sentence += std::string(any_of(random, kGo)) + place;
      place_of[who] = place;
    } else if (owner == owner_of.end()) {
      sentence += std::string(any_of(random, kTake)) + thing;
      owner_of[thing] = who;
    } else if (owner->second != who) {
      sentence = owner->second + std::string(any_of(random, kGive)) + thing +
                 " to " + who;
      owner->second = who;
    } else {
      sentence += " still has the " + thing;
    }
    told.context += (told.context.empty() ? "" : " ") + sentence + ".";
  }
  const bool about_things = !owner_of.empty() && random.below(2) == 0;
  const auto& known = about_things ? owner_of : place_of;
  auto chosen = known.begin();
  std::advance(chosen, random.below(std::ssize(known)));
  told.question = about_things ? "Who has the " + chosen->first + "?"
                               : "Where is " + chosen->first + "?";
  told.answer = chosen->second;
  return told;
}

constexpr const char* kReadme = R"(# Stories: a sample for `regard train answer`

Made up by the rules of `regard sample answer`: people go to places, take
things and hand them on; a question asks where somebody is or who has a thing.
Free to use for anything.

    regard train answer --train train.tsv --valid valid.tsv --out model \
        --dim 32 --ffn 64 --lr 0.003 --warmup 100 --updates 600
    regard answer --model model --input test.tsv --score
    regard answer --model model --context story.txt "Where is Ada?"
)";

}  // namespace

std::vector<SampleFile> sample_stories(std::uint64_t seed) {
  Random random(seed);
  std::set<std::string> seen;
  const auto file = [&](const char* name, int count) {
    std::string text = "context\tquestion\tanswer\n";
    while (count > 0) {
      const Told told = story(random);
      const std::string asked = told.context + "\t" + told.question;
      if (!seen.insert(asked).second) continue;
      text += asked + "\t" + told.answer + "\n";
      --count;
    }
    return SampleFile{name, std::move(text)};
  };
  std::vector<SampleFile> files;
  files.push_back(file("train.tsv", 8000));
  files.push_back(file("valid.tsv", 500));
  files.push_back(file("test.tsv", 500));
  files.push_back({"README.md", kReadme});
  return files;
}

}  // namespace regard::tasks
