// SPDX-License-Identifier: Apache-2.0
// Question answering: stories from files, and a model that learns where people
// are.
#include "regard/tasks/answerer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/tasks/samples.h"
#include "support/refusal.h"

namespace regard::tasks {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using Strings = std::vector<std::string>;

TEST(Sentences, EndAtSignsAndLines) {
  EXPECT_THAT(split_sentences("Ada has 3.5 keys. Where?\nno sign\n\n"
                              "\u4F60\u597D\u3002\u597D\uFF01 e.g. so"),
              ElementsAre("Ada has 3.5 keys.", "Where?", "no sign",
                          "\u4F60\u597D\u3002", "\u597D\uFF01", "e.g.", "so"));
  EXPECT_THAT(split_sentences(" \n "), IsEmpty());
}

TEST(StoryFiles, OfBabiKnowWhatWasToldBeforeTheQuestion) {
  const TemporaryFolder folder;
  write_text(folder / "a.txt",
             "1 Mary went to the park.\n2 Where is Mary? \tpark\t1\n"
             "3 John left.\n4 Who left?\tJohn,Mary\t3 1\n"
             "1 Sun.\n2 What?\tsun\t1\n");
  const std::vector<Story> stories = read_stories(folder / "a.txt");
  ASSERT_EQ(stories.size(), 3u);
  EXPECT_THAT(stories[0].sentences, ElementsAre("Mary went to the park."));
  EXPECT_EQ(stories[0].question, "Where is Mary?");
  EXPECT_EQ(stories[0].answer, "park");
  EXPECT_THAT(stories[1].sentences,
              ElementsAre("Mary went to the park.", "John left."));
  EXPECT_EQ(stories[1].answer, "John,Mary");
  // Line 3 is the second sentence: a question is none.
  EXPECT_THAT(stories[0].support, ElementsAre(0));
  EXPECT_THAT(stories[1].support, ElementsAre(1, 0));
  EXPECT_THAT(stories[2].sentences, ElementsAre("Sun."));
  EXPECT_EQ(stories[2].line, 6);
}

TEST(StoryFiles, OfATableAreCutIntoSentences) {
  const TemporaryFolder folder;
  write_text(folder / "a.csv",
             "question,context,answer\nWho?,\"A is. B, too.\",A\n");
  const std::vector<Story> stories = read_stories(folder / "a.csv");
  ASSERT_EQ(stories.size(), 1u);
  EXPECT_THAT(stories[0].sentences, ElementsAre("A is.", "B, too."));
}

TEST(StoryFiles, NameTheLineThatIsWrong) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* text, const char* message) {
    write_text(folder / "a.txt", text);
    EXPECT_THAT([&] { read_stories(folder / "a.txt"); },
                ThrowsMessage<ParseError>(HasSubstr(message)));
  };
  refused("1 Sun.\nMoon.\n",
          "a.txt', line 2: a line must begin with its number and a blank; got "
          "'Moon.'");
  refused("1 Sun.\n2 What?\t \n",
          "line 2: a question must have an answer after the tab");
  refused("1 \n", "line 1: a line must say something");
  refused("0 Sun.\n", "line 1: a line must begin with its number");
  refused("1 Sun.\n2 What?\tsun\t2\n",
          "line 2: after the second tab there must be numbers of lines of the "
          "story that came before");
}

// Reads the sentences by their words alone, whoever made them.
TEST(SampleStories, HaveTheAnswersThatTheyTell) {
  int questions = 0;
  for (const SampleFile& file : make_sample("answer", 1)) {
    if (file.name == "README.md") continue;
    std::istringstream lines(file.text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::map<std::string, std::string> known;  // where, and who has
      std::istringstream words(line.substr(0, line.find('\t')));
      std::vector<std::string> sentence;
      for (std::string word; words >> word;) {
        sentence.push_back(word);
        if (!word.ends_with('.')) continue;
        sentence.back().pop_back();
        const std::string who = sentence.front();
        const std::string verb = sentence[1];
        const std::string last = sentence.back();
        if (verb == "went" || verb == "walked" || verb == "is" ||
            verb == "ran") {
          known["Where is " + who] = last;
        } else if (verb == "gave" || verb == "handed" || verb == "passed") {
          known["Who has the " + sentence[3]] = last;
        } else {
          known["Who has the " + last] = who;
        }
        sentence.clear();
      }
      const std::size_t question = line.find('\t') + 1;
      const std::size_t mark = line.find("?\t");
      EXPECT_EQ(known[line.substr(question, mark - question)],
                line.substr(mark + 2))
          << line;
      ++questions;
    }
  }
  EXPECT_EQ(questions, 9000);
}

AnswererConfig small_config(std::int64_t vocab) {
  AnswererConfig config;
  config.answers = {"east", "west"};
  config.max_words = 5;
  config.encoder.vocab = vocab;
  config.encoder.model_dim = 16;
  config.encoder.heads = 2;
  config.encoder.layers = 2;
  config.encoder.feed_forward_dim = 32;
  config.encoder.positions = nn::Positions::kSinusoidal;
  config.encoder.pooling = nn::Pooling::kFirst;
  config.encoder.max_length = 4;
  return config;
}

TEST(AnswerData, HasTheQuestionFirstAndForgetsTheOldest) {
  const auto tokenizer = text::make_word_tokenizer(Strings{"a a a b b c"});
  AnswererConfig config = small_config(tokenizer->size());
  const std::vector<Story> stories = {
      {{"c", "a", "b a", "b"}, "a c", "west", 7}};
  AnswerData data = encode_stories(stories, *tokenizer, config);
  EXPECT_THAT(data.stories[0].words, ElementsAre(3, 5, 4, 4, 3, 3));
  EXPECT_THAT(data.stories[0].lengths, ElementsAre(2, 1, 2, 1));
  EXPECT_THAT(data.answers, ElementsAre(1));
  EXPECT_EQ(data.cut, 1);
  config.encoder.max_length = 5;
  EXPECT_EQ(encode_stories(stories, *tokenizer, config).cut, 0);
  config.max_words = 1;
  data = encode_stories(stories, *tokenizer, config);
  EXPECT_THAT(data.stories[0].words, ElementsAre(3, 4, 4, 3, 5));
  EXPECT_EQ(data.cut, 1);
  config.answers[1] = "north";
  EXPECT_THAT(
      test::refusal([&] { encode_stories(stories, *tokenizer, config); }),
      StartsWith("encode_stories: the answer 'west' of line 7 is none "
                 "of the 2 that the training stories have"));
}

TEST(AnswerData, MarksTheSentencesThatTheAnswerFollowsFrom) {
  const auto tokenizer = text::make_word_tokenizer(Strings{"a a a b b c"});
  const AnswererConfig config = small_config(tokenizer->size());
  // Three sentences are read, from the last one back; the first is forgotten.
  const std::vector<Story> stories = {
      {{"c", "a", "b a", "b"}, "a c", "west", 7, {0, 2}},
      {{"c"}, "a c", "west", 8}};
  const AnswerData data = encode_stories(stories, *tokenizer, config);
  EXPECT_THAT(data.stories[0].support, ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(data.stories[1].support, IsEmpty());
}

TEST(Answerer, RefusesConfigsThatMakeNoSense) {
  const AnswerData none;
  const auto refused = [&](auto change, const char* message) {
    AnswererConfig config = small_config(10);
    change(config);
    EXPECT_THAT(test::refusal([&] { make_answer_task(config, none, none, 1); }),
                StartsWith(message));
  };
  refused([](AnswererConfig& c) { c.answers.pop_back(); },
          "Answerer: there must be at least two answers; there are 1");
  refused([](AnswererConfig& c) { c.answers[1] = "east"; },
          "Answerer: no answer may be there twice");
  refused([](AnswererConfig& c) { c.max_words = 0; },
          "Answerer: max_words must be positive; it is 0");
  refused([](AnswererConfig& c) { c.encoder.pooling = nn::Pooling::kMean; },
          "Answerer: pooling must be that of the first token");
  refused([](AnswererConfig& c) { c.label_smoothing = 1; },
          "Answerer: label_smoothing must be in [0, 1); it is 1");
  refused([](AnswererConfig& c) { c.blank_sentences = 1; },
          "Answerer: blank_sentences must be in [0, 1); it is 1");
  refused([](AnswererConfig& c) { c.word_layers = -1; },
          "Answerer: word_layers must be in 0 .. 1024; it is -1");
}

// Two people go east or west, one of them twice; the last time counts.
std::vector<Story> journeys(int count, std::uint64_t seed) {
  Random random(seed);
  std::vector<Story> stories;
  for (int i = 0; i < count; ++i) {
    Story story;
    const std::int64_t asked = random.below(2);
    for (int s = 0; s < 3; ++s) {
      const std::int64_t who = s == 0 ? asked : random.below(2);
      const char* where = random.below(2) == 0 ? "east" : "west";
      story.sentences.push_back(std::string(who == 0 ? "ada" : "ben") +
                                " goes " + where);
      if (who == asked) story.answer = where;
    }
    story.question = asked == 0 ? "ada where" : "ben where";
    stories.push_back(std::move(story));
  }
  return stories;
}

TEST(Answerer, LearnsThatTheLastSentenceAboutAPersonCounts) {
  const std::vector<Story> stories = journeys(600, 1);
  const Strings words = {"ada ben goes east west where"};
  const AnswererConfig config =
      small_config(text::make_word_tokenizer(words)->size());
  const AnswerData training =
      encode_stories(stories, *text::make_word_tokenizer(words), config);
  const AnswerData none;
  ExampleTask task = make_answer_task(config, training, none, 1);
  train::TrainingOptions options;
  options.max_updates = 200;
  options.batch_tokens = 800;
  options.schedule = {.kind = train::ScheduleKind::kConstant, .peak = 1e-2};
  const TemporaryFolder folder;
  train::Observer nobody;
  const StateDict weights = train::train(task, options, folder / "training",
                                         train::Start::kNew, nobody)
                                .weights;
  const Answerer model(config, text::make_word_tokenizer(words), weights);
  const std::vector<Story> test = journeys(200, 2);
  const std::vector<Answer> together = model.answer(test, {.count = 3});
  int right = 0;
  for (std::size_t i = 0; i < test.size(); ++i) {
    right += together[i].text == test[i].answer;
  }
  EXPECT_GE(right, 190);
  // Alone, and from the disk.
  save_answerer(folder.path(), config, *text::make_word_tokenizer(words),
                weights);
  const Answerer loaded = Answerer::load(folder.path());
  for (std::size_t i = 0; i < 20; ++i) {
    const Answer alone = loaded.explain(test[i], {.count = 1});
    EXPECT_EQ(alone.text, together[i].text);
    EXPECT_EQ(alone.probability, together[i].probability);
    ASSERT_EQ(alone.looked_at.size(), 3u);
    float sum = 0;
    for (const float share : alone.looked_at) sum += share;
    EXPECT_GT(sum, 0.0f);
    EXPECT_LT(sum, 1.0f);
  }
}

// "ada follows ben" and who follows whom: the words are the same both ways.
std::vector<Story> followers(int count, std::uint64_t seed) {
  const Strings people = {"ada", "ben", "clara", "david"};
  Random random(seed);
  std::vector<Story> stories;
  for (int i = 0; i < count; ++i) {
    const std::int64_t a = random.below(4);
    const std::int64_t b = (a + 1 + random.below(3)) % 4;
    const std::string& first = people[static_cast<std::size_t>(a)];
    const std::string& second = people[static_cast<std::size_t>(b)];
    const bool told_last = random.below(2) == 0;
    Story story = {{"it rains", "it snows"}, "who is first", second};
    story.sentences[told_last ? 1 : 0] = first + " follows " + second;
    story.support = {told_last ? 1 : 0};
    stories.push_back(std::move(story));
  }
  return stories;
}

TEST(Answerer, LearnsTheOrderOfWordsAndWhereTheAnswerIsFrom) {
  const Strings words = {
      "ada ben clara david follows who is first it rains snows"};
  const auto tokenizer = text::make_word_tokenizer(words);
  AnswererConfig config = small_config(tokenizer->size());
  config.answers = {"ada", "ben", "clara", "david"};
  config.encoder.max_length = 6;
  config.word_layers = 1;
  config.support = true;
  config.blank_sentences = 0.2f;
  const AnswerData training =
      encode_stories(followers(600, 1), *tokenizer, config);
  const AnswerData none;
  ExampleTask task = make_answer_task(config, training, none, 1);
  train::TrainingOptions options;
  options.max_updates = 150;
  options.batch_tokens = 600;
  options.schedule = {.kind = train::ScheduleKind::kConstant, .peak = 1e-2};
  const TemporaryFolder folder;
  train::Observer nobody;
  const StateDict weights = train::train(task, options, folder / "training",
                                         train::Start::kNew, nobody)
                                .weights;
  save_answerer(folder.path(), config, *tokenizer, weights);
  const Answerer model = Answerer::load(folder.path());
  int right = 0, supported = 0;
  for (const Story& story : followers(50, 2)) {
    const Answer answer = model.explain(story, {.count = 1});
    right += answer.text == story.answer;
    ASSERT_EQ(answer.support.size(), 2u);
    supported +=
        (answer.support[1] > answer.support[0]) == (story.support[0] == 1);
  }
  EXPECT_GE(right, 45);
  EXPECT_GE(supported, 45);
}

}  // namespace
}  // namespace regard::tasks
