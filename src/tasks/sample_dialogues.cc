// SPDX-License-Identifier: Apache-2.0
// Dialogues of two people who make a plan, each with a summary in one sentence.
// A plan may change on the way, so a model must know what was said last. The
// people of valid and test have names that train does not have: they can only
// be copied.
#include <array>
#include <set>
#include <string>
#include <vector>

#include "regard/tasks/translation_data.h"
#include "tasks/samples.h"

namespace regard::tasks {
namespace {

// A name is three of these, so that there are many, and most are rare.
constexpr std::array kFirst = {"Ka", "Mi", "Ro", "Te", "Lu", "Sa",
                               "No", "Vi", "Da", "Be", "Jo", "Ha"};
constexpr std::array kMiddle = {"ri", "la", "mo", "ne", "vi", "du",
                                "sa", "ti", "ko", "be", "re", "ga"};
constexpr std::array kLast = {"ra",  "lin", "mo", "ten", "s", "vi",
                              "dor", "na",  "ko", "bel", "n", "mer"};
constexpr std::array kPlaces = {"cinema",  "museum", "lake",    "market",
                                "library", "park",   "station", "theatre"};
constexpr std::array kDays = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                              "Friday", "Saturday", "Sunday"};
constexpr std::array kThings = {"a cake",      "a map",   "the tickets",
                                "an umbrella", "the dog", "sandwiches"};
constexpr std::array kHellos = {"Hi NAME!", "Hello NAME, how are you?",
                                "NAME, are you there?", "Good morning, NAME."};
constexpr std::array kReplies = {"Hi! Nice to hear from you.",
                                 "Yes, what is it?", "Fine, thanks. And you?"};
constexpr std::array kProposals = {
    "Shall we go to the PLACE on DAY?",
    "Do you want to come to the PLACE on DAY?",
    "I would like to see the PLACE. Are you free on DAY?",
    "On DAY I go to the PLACE. Come with me!"};
constexpr std::array kYes = {"Sure, why not.", "Good idea.", "With pleasure!",
                             "That is fine with me."};
constexpr std::array kNo = {"Sorry, I have to work.", "No, I am far too busy.",
                            "I would love to, but I am ill."};
constexpr std::array kOtherDays = {"I can not on DAY. How about OTHER?",
                                   "DAY is bad. Is OTHER good for you?",
                                   "Not on DAY, please. I am free on OTHER."};
constexpr std::array kOtherPlaces = {
    "The PLACE again? Let us go to the OTHER.",
    "I do not like the PLACE. What about the OTHER?",
    "The PLACE is closed. We could go to the OTHER."};
constexpr std::array kPities = {"What a pity.", "Another time, then.",
                                "All right, never mind."};
constexpr std::array kBrings = {
    "I will bring THING.", "I can take THING with me.", "Then I bring THING."};
constexpr std::array kAsks = {"Can you bring THING?",
                              "Please take THING with you.",
                              "Would you bring THING?"};
constexpr std::array kEnds = {"See you!", "Bye!", "I look forward to it."};

std::string filled(std::string_view pattern, std::string_view word,
                   std::string_view value) {
  std::string text(pattern);
  const std::size_t at = text.find(word);
  if (at != std::string::npos) text.replace(at, word.size(), value);
  return text;
}

enum class People { kTraining, kOthers };

// Every sixth name is kept from train.
std::string person(Random& random, People people) {
  for (;;) {
    const std::string name = std::string(any_of(random, kFirst)) +
                             std::string(any_of(random, kMiddle)) +
                             std::string(any_of(random, kLast));
    const bool others = hash_of(name) % 6 == 0;
    if (others == (people == People::kOthers)) return name;
  }
}

template <typename List>
std::string another(Random& random, const List& list, const std::string& than) {
  for (;;) {
    const std::string_view found = any_of(random, list);
    if (found != than) return std::string(found);
  }
}

struct Dialogue {
  std::string text, summary;

  void say(const std::string& who, std::string_view what) {
    text += (text.empty() ? "" : "\n") + who + ": ";
    text += what;
  }
};

// Who brings what; what the summary says of it.
std::string bring(Random& random, Dialogue& d, const std::string& a,
                  const std::string& b) {
  const std::string_view thing = any_of(random, kThings);
  const bool asks = random.below(2) == 0;
  d.say(a, filled(any_of(random, asks ? kAsks : kBrings), "THING", thing));
  d.say(b, any_of(random, kYes));
  return ", and " + (asks ? b : a) + " will bring " + std::string(thing);
}

Dialogue dialogue(Random& random, People people) {
  const std::string a = person(random, people);
  std::string b = person(random, people);
  while (b == a) b = person(random, people);
  std::string place(any_of(random, kPlaces)), day(any_of(random, kDays));
  Dialogue d;
  if (random.below(3) > 0) {
    d.say(a, filled(any_of(random, kHellos), "NAME", b));
    d.say(b, any_of(random, kReplies));
  }
  d.say(a,
        filled(filled(any_of(random, kProposals), "PLACE", place), "DAY", day));
  const std::int64_t turn = random.below(6);
  if (turn == 0) {
    d.say(b, any_of(random, kNo));
    d.say(a, any_of(random, kPities));
    d.summary =
        b + " can not go to the " + place + " with " + a + " on " + day + ".";
    return d;
  }
  if (turn == 1 || turn == 2) {
    const std::string other = another(random, kDays, day);
    d.say(b, filled(filled(any_of(random, kOtherDays), "DAY", day), "OTHER",
                    other));
    day = other;
    d.say(a, any_of(random, kYes));
  } else if (turn == 3 || turn == 4) {
    const std::string other = another(random, kPlaces, place);
    d.say(b, filled(filled(any_of(random, kOtherPlaces), "PLACE", place),
                    "OTHER", other));
    place = other;
    d.say(a, any_of(random, kYes));
  } else {
    d.say(b, any_of(random, kYes));
  }
  d.summary = a + " and " + b + " will go to the " + place + " on " + day;
  const std::int64_t brings = random.below(3);
  if (brings == 1) d.summary += bring(random, d, a, b);
  if (brings == 2) d.summary += bring(random, d, b, a);
  d.summary += ".";
  if (random.below(2) == 0) d.say(a, any_of(random, kEnds));
  return d;
}

constexpr const char* kReadme =
    R"(# Dialogues: a sample for `regard train summarize`

Made up by the rules of `regard sample summarize`: two people make a plan, which
may change while they talk, and a sentence says what came out. The names in
valid.jsonl and test.jsonl are in no dialogue of train.jsonl: a model must copy
them. Free to use for anything.

    regard train summarize --train train.jsonl --valid valid.jsonl --out model \
        --vocab 200 --dim 64 --ffn 128 --decoder-layers 1 --dropout 0 \
        --smoothing 0 --lr 0.005 --warmup 50 --updates 800
    regard summarize --model model --input test.jsonl --score
    regard summarize --model model dialogue.txt
)";

std::string in_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::vector<SampleFile> sample_dialogues(std::uint64_t seed) {
  Random random(seed);
  std::set<std::string> seen;
  const auto file = [&](const char* name, int count, People people) {
    std::string text;
    while (count > 0) {
      const Dialogue d = dialogue(random, people);
      if (!seen.insert(d.text).second) continue;
      text += "{\"text\": " + in_json(d.text) +
              ", \"summary\": " + in_json(d.summary) + "}\n";
      --count;
    }
    return SampleFile{name, std::move(text)};
  };
  std::vector<SampleFile> files;
  files.push_back(file("train.jsonl", 6000, People::kTraining));
  files.push_back(file("valid.jsonl", 300, People::kOthers));
  files.push_back(file("test.jsonl", 300, People::kOthers));
  files.push_back({"README.md", kReadme});
  return files;
}

}  // namespace regard::tasks
