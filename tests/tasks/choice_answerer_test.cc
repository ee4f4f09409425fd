// SPDX-License-Identifier: Apache-2.0
// Questions that come with choices.
#include "regard/tasks/choice_answerer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/tasks/samples.h"
#include "support/refusal.h"
#include "tasks/weight_types.h"

namespace regard::tasks {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using Strings = std::vector<std::string>;

TEST(ChoiceFiles, AreJsonLines) {
  const TemporaryFolder folder;
  write_text(
      folder / "a.jsonl",
      "{\"context\": \"Ada left.\", \"question\": \"Who?\", \"choices\": "
      "[\"Ben\", \"Ada\"], \"answer\": \"Ada\"}\n\n");
  const auto questions = read_choice_questions(folder / "a.jsonl");
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_THAT(questions[0].choices, ElementsAre("Ben", "Ada"));
  EXPECT_EQ(questions[0].answer, 1);
  EXPECT_EQ(questions[0].line, 1);
}

TEST(ChoiceFiles, NameTheLineThatIsWrong) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* text, const char* message) {
    write_text(folder / "a.jsonl", text);
    EXPECT_THAT([&] { read_choice_questions(folder / "a.jsonl"); },
                ThrowsMessage<ParseError>(HasSubstr(message)));
  };
  refused("\n[1]\n", "a.jsonl', line 2: there must be one JSON object");
  refused("{\"context\": \"a\"}",
          "line 1: the object must have the field "
          "'question'");
  refused(
      "{\"context\": \"a\", \"question\": \"b\", \"choices\": [\"c\"], "
      "\"answer\": \"c\"}",
      "the field 'choices' must be an array of two strings at least");
  refused(
      "{\"context\": \"a\", \"question\": \"b\", \"choices\": [\"c\", 3], "
      "\"answer\": \"c\"}",
      "a choice must be a string that is not blank");
  refused(
      "{\"context\": \"a\", \"question\": \"b\", \"choices\": [\"c\", "
      "\"d\"], \"answer\": \"e\"}",
      "the answer must be one of the choices; it is 'e'");
  EXPECT_THAT([&] { read_choice_questions(folder / "a.tsv"); },
              ThrowsMessage<ParseError>(HasSubstr("are JSON Lines")));
}

TEST(SampleChoices, HaveAnAnswerAndThreeOthersThatTheContextHas) {
  int questions = 0;
  for (const SampleFile& file : make_sample("choices", 2)) {
    if (file.name == "README.md") continue;
    std::istringstream lines(file.text);
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      auto choices = row.at("choices").get<Strings>();
      EXPECT_EQ(std::count(choices.begin(), choices.end(), row.at("answer")),
                1);
      std::sort(choices.begin(), choices.end());
      EXPECT_EQ(std::unique(choices.begin(), choices.end()) - choices.begin(),
                4);
      for (const std::string& choice : choices) {
        EXPECT_THAT(row.at("context").get<std::string>(), HasSubstr(choice));
      }
      ++questions;
    }
  }
  EXPECT_EQ(questions, 4500);
}

ChoiceAnswererConfig small_config(std::int64_t vocab) {
  ChoiceAnswererConfig config;
  config.encoder.vocab = vocab;
  config.encoder.model_dim = 16;
  config.encoder.heads = 2;
  config.encoder.layers = 1;
  config.encoder.feed_forward_dim = 32;
  config.encoder.positions = nn::Positions::kRotary;
  config.encoder.pooling = nn::Pooling::kAttention;
  config.encoder.max_length = 16;
  return config;
}

TEST(ChoiceData, KnowsWhatStandsOnTheOtherSide) {
  const auto tokenizer =
      text::make_word_tokenizer(Strings{"a a a a a b b b b c c c d d e"});
  const ChoiceAnswererConfig config = small_config(tokenizer->size());
  const std::int32_t a = 3, b = 4, c = 5, d = 6, e = 7;
  const std::vector<ChoiceQuestion> questions = {
      {"a b c a", "c e", {"a b d", "d"}, 0, 1}};
  const ChoiceData data =
      encode_choice_questions(questions, *tokenizer, config);
  ASSERT_EQ(data.questions.at(0).size(), 2u);
  const EncodedChoice& first = data.questions[0][0];
  EXPECT_THAT(first.tokens, ElementsAre(text::kBegin, a, b, d, text::kEnd, c, e,
                                        text::kEnd, a, b, c, a));
  // a b is a pair of the context, d is in both choices; c is in the question.
  EXPECT_THAT(first.kinds,
              ElementsAre(15, 4, 4, 1, 15, 7, 6, 15, 13, 13, 10, 11));
  EXPECT_THAT(data.questions[0][1].kinds,
              ElementsAre(15, 1, 15, 7, 6, 15, 9, 9, 10, 9));
  EXPECT_EQ(data.cut, 0);
  // Of a long context the part that has the choice: 16 - 6 tokens.
  const std::vector<ChoiceQuestion> wide = {
      {"c c c c c c c c c c c c c c a b", "c e", {"a b", "d"}, 0, 1}};
  const ChoiceData cut = encode_choice_questions(wide, *tokenizer, config);
  EXPECT_EQ(cut.cut, 1);
  EXPECT_EQ(cut.questions[0][0].tokens.size(), 16u);
  EXPECT_EQ(cut.questions[0][0].tokens.back(), b);
}

TEST(ChoiceAnswerer, RefusesConfigsThatMakeNoSense) {
  const ChoiceData none;
  ChoiceAnswererConfig config = small_config(10);
  config.token_dropout = 1;
  EXPECT_THAT(test::refusal([&] { make_choice_task(config, none, none, 1); }),
              StartsWith("ChoiceAnswerer: token_dropout must be in [0, 1)"));
  config = small_config(10);
  config.encoder.max_length = 15;
  EXPECT_THAT(test::refusal([&] { make_choice_task(config, none, none, 1); }),
              StartsWith("ChoiceAnswerer: max_length must be at least 16"));
}

// Who of two had the food that is asked for.
std::vector<ChoiceQuestion> meals(int count, std::uint64_t seed) {
  const Strings people = {"ada", "ben", "clara", "david"};
  const Strings foods = {"fig", "plum", "nut", "leek"};
  Random random(seed);
  std::vector<ChoiceQuestion> out;
  for (int i = 0; i < count; ++i) {
    const std::size_t who = static_cast<std::size_t>(random.below(4));
    const std::size_t other =
        (who + 1 + static_cast<std::size_t>(random.below(3))) % 4;
    const std::size_t food = static_cast<std::size_t>(random.below(4));
    const std::size_t meal =
        (food + 1 + static_cast<std::size_t>(random.below(3))) % 4;
    ChoiceQuestion question;
    const std::string a = people[who] + " eats " + foods[food] + " . ";
    const std::string b = people[other] + " eats " + foods[meal] + " . ";
    question.context = random.below(2) == 0 ? a + b : b + a;
    question.question = people[who];
    question.answer = random.below(2);
    question.choices = {foods[meal], foods[meal]};
    question.choices[static_cast<std::size_t>(question.answer)] = foods[food];
    out.push_back(std::move(question));
  }
  return out;
}

TEST(ChoiceAnswerer, LearnsToChooseByTheContext) {
  const Strings words = {"ada ben clara david fig plum nut leek eats ."};
  const auto tokenizer = text::make_word_tokenizer(words);
  const ChoiceAnswererConfig config = small_config(tokenizer->size());
  const ChoiceData training =
      encode_choice_questions(meals(1000, 1), *tokenizer, config);
  const ChoiceData none;
  ExampleTask task = make_choice_task(config, training, none, 1);
  train::TrainingOptions options;
  options.max_updates = 250;
  options.batch_tokens = 1000;
  options.schedule = {.kind = train::ScheduleKind::kConstant, .peak = 1e-2};
  const TemporaryFolder folder;
  train::Observer nobody;
  const StateDict weights = train::train(task, options, folder / "training",
                                         train::Start::kNew, nobody)
                                .weights;
  save_choice_answerer(folder.path(), config, *tokenizer, weights);
  const ChoiceAnswerer model = ChoiceAnswerer::load(folder.path());
  const std::vector<ChoiceQuestion> test = meals(200, 2);
  const auto together = model.answer(test, {.count = 3});
  int right = 0;
  for (std::size_t i = 0; i < test.size(); ++i) {
    ASSERT_EQ(together[i].size(), 2u);
    EXPECT_NEAR(together[i][0] + together[i][1], 1, 1e-9);
    right += (together[i][1] > together[i][0]) == (test[i].answer == 1);
  }
  EXPECT_GE(right, 180);
  EXPECT_EQ(model.answer(std::span(&test[5], 1), {.count = 1})[0], together[5]);
  expect_weight_types_agree(
      [&](ops::WeightStorage storage) {
        return ChoiceAnswerer::load(folder.path(), storage);
      },
      [&](const ChoiceAnswerer& answerer, std::size_t first, std::size_t count,
          Threads threads) {
        std::vector<Said> said;
        for (const auto& p :
             answerer.answer(std::span(test).subspan(first, count), threads)) {
          said.push_back({p[1] > p[0] ? "second" : "first", p[0]});
        }
        return said;
      },
      test.size(), 1e-6);
}

}  // namespace
}  // namespace regard::tasks
