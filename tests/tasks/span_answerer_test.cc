// SPDX-License-Identifier: Apache-2.0
// Answers that are quoted: questions from files, windows over long texts, a
// model that learns where to look, and the measure of SQuAD.
#include "regard/tasks/span_answerer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/tasks/samples.h"
#include "support/refusal.h"
#include "tasks/pointer.h"
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

std::string quoted(const SpanQuestion& question) {
  return question.context.substr(static_cast<std::size_t>(question.begin),
                                 question.answers.at(0).size());
}

TEST(SpanFiles, OfATableHaveTheFirstPlaceOrTheOneThatIsGiven) {
  const TemporaryFolder folder;
  write_text(folder / "a.tsv",
             "question\tcontext\tanswer\nWho?\tAda saw Ada.\tAda\n");
  EXPECT_EQ(read_span_questions(folder / "a.tsv").at(0).begin, 0);
  // Counted in characters: the first one has two bytes.
  write_text(
      folder / "b.jsonl",
      "{\"question\": \"Who?\", \"context\": \"\u00C9va saw Ada, Ada.\", "
      "\"answer\": \"Ada\", \"start\": 13}\n");
  const SpanQuestion second = read_span_questions(folder / "b.jsonl").at(0);
  EXPECT_EQ(second.begin, 14);
  EXPECT_EQ(quoted(second), "Ada");
}

TEST(SpanFiles, OfSquadHaveAllAnswers) {
  const TemporaryFolder folder;
  write_text(folder / "a.json",
             R"({"version": "1.1", "data": [{"title": "t", "paragraphs": [
  {"context": "Ada met Ben in May.", "qas": [
    {"id": "1", "question": "When?", "answers": [
      {"text": "May", "answer_start": 15}, {"text": "in May", "answer_start": 12}]},
    {"id": "2", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}]}]}]})");
  const auto questions = read_span_questions(folder / "a.json");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_THAT(questions[0].answers, ElementsAre("May", "in May"));
  EXPECT_EQ(quoted(questions[0]), "May");
  EXPECT_EQ(questions[1].question, "Who?");
  write_text(folder / "b.json",
             R"({"data": [{"paragraphs": [{"context": "Ada.", "qas": [
  {"question": "Who?", "answers": [], "is_impossible": true}]}]}]})");
  EXPECT_THAT([&] { read_span_questions(folder / "b.json"); },
              ThrowsMessage<ParseError>(HasSubstr("questions without one")));
}

TEST(SpanFiles, OfBabiQuoteTheSupportingSentence) {
  const TemporaryFolder folder;
  write_text(folder / "a.txt",
             "1 Ada went to the park.\n2 Ben went to the park.\n"
             "3 Where is Ada?\tpark\t1\n");
  const SpanQuestion question = read_span_questions(folder / "a.txt").at(0);
  EXPECT_EQ(question.context, "Ada went to the park. Ben went to the park.");
  EXPECT_EQ(question.begin, 16);
}

TEST(SpanFiles, NameTheLineThatIsWrong) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* name, const char* text,
                           const char* message) {
    write_text(folder / name, text);
    EXPECT_THAT([&] { read_span_questions(folder / name); },
                ThrowsMessage<ParseError>(HasSubstr(message)));
  };
  refused("a.tsv", "context\tquestion\tanswer\nA.\tWho?\tA\nB.\tWho?\tC\n",
          "a.tsv', line 3: the context must have the answer 'C'; it does not");
  refused("b.tsv", "context\tquestion\tanswer\tstart\nAda.\tWho?\tAda\t1\n",
          "line 2: the context must have the answer 'Ada' at the character 1");
  refused("c.tsv", "context\tquestion\tanswer\tstart\nAda.\tWho?\tAda\tx\n",
          "start must be the number of a character, from 0 on; got 'x'");
  refused("d.txt", "1 Ada left.\n2 Did she?\tyes\t1\n",
          "d.txt', line 2: the story must have the answer 'yes'");
}

TEST(SampleSpans, HaveTheirAnswersInTheSentenceThatNamesThePerson) {
  int questions = 0;
  for (const SampleFile& file : make_sample("spans", 3)) {
    if (file.name == "README.md") continue;
    std::istringstream lines(file.text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::vector<std::string> fields;
      std::istringstream row(line);
      for (std::string field; std::getline(row, field, '\t');) {
        fields.push_back(field);
      }
      ASSERT_EQ(fields.size(), 4u);
      const std::size_t start = std::stoul(fields[3]);
      ASSERT_EQ(fields[0].substr(start, fields[2].size()), fields[2]);
      const std::size_t dot = fields[0].rfind('.', start);
      const std::size_t begin = dot == std::string::npos ? 0 : dot + 2;
      const std::string sentence =
          fields[0].substr(begin, fields[0].find('.', start) - begin);
      // The name is two words with capitals, not the first of the question.
      std::istringstream words(fields[1]);
      std::string before, name;
      for (std::string word; words >> word; before = word) {
        const bool capital = word[0] >= 'A' && word[0] <= 'Z';
        if (!before.empty() && capital && before[0] >= 'A' &&
            before[0] <= 'Z' && before != "What" && before != "Where") {
          name = before + " " + word.substr(0, word.find('?'));
        }
      }
      EXPECT_THAT(sentence, HasSubstr(name)) << line;
      ++questions;
    }
  }
  EXPECT_EQ(questions, 4500);
}

SpanAnswererConfig small_config(std::int64_t vocab) {
  SpanAnswererConfig config;
  config.encoder.vocab = vocab;
  config.encoder.model_dim = 16;
  config.encoder.heads = 2;
  config.encoder.layers = 2;
  config.encoder.feed_forward_dim = 32;
  config.encoder.positions = nn::Positions::kRotary;
  config.encoder.pooling = nn::Pooling::kFirst;
  config.encoder.max_length = 12;
  config.overlap = 3;
  config.max_answer = 2;
  return config;
}

TEST(SpanData, ReadsLongTextsInWindowsThatOverlap) {
  const auto tokenizer =
      text::make_word_tokenizer(Strings{"a a a a b b b c c d"});
  const SpanAnswererConfig config = small_config(tokenizer->size());
  const std::int32_t a = 3, b = 4, c = 5, d = 6;
  // Four tokens are <s> b d </s>: eight of the context fit, five are new.
  const std::vector<SpanQuestion> questions = {
      {"a a a a a a b c a a a", "b d", {"b c"}, 12, 1}};
  const SpanData data = encode_span_questions(questions, *tokenizer, config);
  ASSERT_EQ(data.windows.size(), 2u);
  EXPECT_THAT(
      data.windows[0].tokens,
      ElementsAre(text::kBegin, b, d, text::kEnd, a, a, a, a, a, a, b, c));
  EXPECT_THAT(data.windows[0].kinds,
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 1));
  EXPECT_EQ(data.windows[0].begin, 10);
  EXPECT_EQ(data.windows[0].end, 11);
  EXPECT_THAT(data.windows[1].tokens,
              ElementsAre(text::kBegin, b, d, text::kEnd, a, b, c, a, a, a));
  EXPECT_EQ(data.windows[1].begin, 5);
  EXPECT_EQ(data.windows[1].end, 6);
  EXPECT_EQ(data.unseen, 0);
  // An answer that no window has from end to end.
  const std::vector<SpanQuestion> wide = {
      {"a a a a a a b c a a a", "b d", {"a a b c a a a"}, 8, 1}};
  const SpanData lost = encode_span_questions(wide, *tokenizer, config);
  EXPECT_EQ(lost.unseen, 1);
  EXPECT_EQ(lost.windows[0].begin, 0);
}

TEST(SpanAnswerer, RefusesConfigsThatMakeNoSense) {
  const SpanData none;
  const auto refused = [&](auto change, const char* message) {
    SpanAnswererConfig config = small_config(10);
    change(config);
    EXPECT_THAT(test::refusal([&] { make_span_task(config, none, none, 1); }),
                StartsWith(message));
  };
  refused([](SpanAnswererConfig& c) { c.encoder.pooling = nn::Pooling::kMean; },
          "SpanAnswerer: pooling must be that of the first token");
  refused([](SpanAnswererConfig& c) { c.encoder.max_length = 7; },
          "SpanAnswerer: max_length must be at least 8; it is 7");
  refused([](SpanAnswererConfig& c) { c.token_dropout = 1; },
          "SpanAnswerer: token_dropout must be in [0, 1); it is 1");
  refused([](SpanAnswererConfig& c) { c.overlap = -1; },
          "SpanAnswerer: overlap must be in 0 .. 131072; it is -1");
  refused([](SpanAnswererConfig& c) { c.max_answer = 0; },
          "SpanAnswerer: max_answer must be in 1 .. 131072; it is 0");
}

TEST(Pointer, LosesTheLogarithmOfTheProbability) {
  const Pointer pointer = {"to", 6};
  nn::ParameterSpecs specs;
  pointer.declare(specs);
  const StateDict weights = nn::initial_parameters(specs, 1);
  Random random(2);
  Tensor rows({7, 6}), groups({2, 6});
  for (float& x : rows.values<float>()) x = 3 * random.normal();
  for (float& x : groups.values<float>()) x = random.normal();
  const std::vector<std::int64_t> offsets = {0, 5, 7};
  const std::vector<std::int64_t> marked = {3, 5};
  autograd::Tape tape(autograd::Record::kNo);
  nn::Pass pass(tape, weights);
  const nn::Variable r = tape.constant(rows.view<float, 2>());
  const nn::Variable g = tape.constant(groups.view<float, 2>());
  const std::vector<double> p = pointer.probabilities(pass, g, r, offsets);
  EXPECT_NEAR(p[0] + p[1] + p[2] + p[3] + p[4], 1, 1e-9);
  EXPECT_NEAR(p[5] + p[6], 1, 1e-9);
  EXPECT_NEAR(pointer.loss(pass, g, r, offsets, marked),
              -std::log(p[3]) - std::log(p[5]), 1e-4);
}

// "ada eats fig . ben eats plum ." and who eats what: the word behind the verb
// of the one who is asked for.
std::vector<SpanQuestion> meals(int count, int sentences, std::uint64_t seed) {
  const Strings people = {"ada", "ben", "clara", "david", "emma", "felix"};
  const Strings foods = {"fig", "plum", "nut", "leek", "bean", "corn"};
  Random random(seed);
  std::vector<SpanQuestion> out;
  for (int i = 0; i < count; ++i) {
    SpanQuestion question;
    const std::size_t asked = static_cast<std::size_t>(random.below(6));
    const int at = static_cast<int>(random.below(sentences));
    for (int s = 0; s < sentences; ++s) {
      std::size_t who = asked;
      while (s != at && who == asked) {
        who = static_cast<std::size_t>(random.below(6));
      }
      const std::string food = foods[static_cast<std::size_t>(random.below(6))];
      question.context += people[who] + " eats ";
      if (s == at) {
        question.begin = std::ssize(question.context);
        question.answers = {food};
      }
      question.context += food + " . ";
    }
    question.question = people[asked] + " what";
    out.push_back(std::move(question));
  }
  return out;
}

TEST(SpanAnswerer, LearnsToQuoteFromTextsThatAreLongerThanAWindow) {
  const Strings words = {
      "ada ben clara david emma felix fig plum nut leek bean corn eats . what"};
  const auto tokenizer = text::make_word_tokenizer(words);
  SpanAnswererConfig config = small_config(tokenizer->size());
  config.encoder.max_length = 24;
  config.overlap = 4;
  const SpanData training =
      encode_span_questions(meals(800, 4, 1), *tokenizer, config);
  const SpanData none;
  ExampleTask task = make_span_task(config, training, none, 1);
  train::TrainingOptions options;
  options.max_updates = 250;
  options.batch_tokens = 800;
  options.schedule = {.kind = train::ScheduleKind::kConstant, .peak = 1e-2};
  const TemporaryFolder folder;
  train::Observer nobody;
  const StateDict weights = train::train(task, options, folder / "training",
                                         train::Start::kNew, nobody)
                                .weights;
  save_span_answerer(folder.path(), config, *tokenizer, weights);
  const SpanAnswerer model = SpanAnswerer::load(folder.path());
  // 60 tokens: three windows or more.
  const std::vector<SpanQuestion> test = meals(100, 15, 2);
  const std::vector<Span> together = model.answer(test, {.count = 3});
  int right = 0;
  for (std::size_t i = 0; i < test.size(); ++i) {
    right += together[i].begin == test[i].begin &&
             together[i].end == test[i].begin + std::ssize(test[i].answers[0]);
    EXPECT_GT(together[i].score, 0);
    EXPECT_LE(together[i].score, 1);
  }
  EXPECT_GE(right, 90);
  const Span alone = model.answer(std::span(&test[7], 1), {.count = 1})[0];
  EXPECT_EQ(alone.begin, together[7].begin);
  EXPECT_EQ(alone.score, together[7].score);
  const std::vector<SpanQuestion> blank = {{"", "ada what"}};
  EXPECT_EQ(model.answer(blank)[0].score, 0);
  expect_weight_types_agree(
      [&](ops::WeightStorage storage) {
        return SpanAnswerer::load(folder.path(), storage);
      },
      [&](const SpanAnswerer& answerer, std::size_t first, std::size_t count,
          Threads threads) {
        std::vector<Said> said;
        for (const Span& span :
             answerer.answer(std::span(test).subspan(first, count), threads)) {
          said.push_back(
              {std::to_string(span.begin) + " to " + std::to_string(span.end),
               span.score});
        }
        return said;
      },
      test.size(), 1e-4);
}

// What the script of SQuAD 1.1 prints for these.
TEST(SpanScores, AreThoseOfSquad) {
  const auto of = [](const char* answer, const Strings& right) {
    const Strings answers = {answer};
    const std::vector<Strings> truth = {right};
    return score_spans(answers, truth);
  };
  EXPECT_EQ(of("The Park!", {"a park"}).exact_match, 1);
  EXPECT_EQ(of("park", {"zoo", "park"}).exact_match, 1);
  EXPECT_EQ(of("the", {"an"}).exact_match, 1);
  EXPECT_EQ(of("the", {"an"}).f1, 0);
  const SpanScore half = of("old green park", {"the green park"});
  EXPECT_EQ(half.exact_match, 0);
  EXPECT_NEAR(half.f1, 0.8, 1e-12);
  EXPECT_NEAR(of("no no yes", {"no"}).f1, 0.5, 1e-12);
  EXPECT_EQ(of("U.S.", {"us"}).exact_match, 1);
  // A word boundary, not a blank, makes an article.
  EXPECT_EQ(of("\u201Cthe park\u201D", {"\u201C park\u201D"}).exact_match, 1);
  const Strings two = {"park", "zoo"};
  const std::vector<Strings> truth = {{"park"}, {"farm"}};
  EXPECT_EQ(score_spans(two, truth).exact_match, 0.5);
  EXPECT_THAT(test::refusal([&] { score_spans({}, {}); }),
              StartsWith("score_spans: there must be an answer for each"));
}

}  // namespace
}  // namespace regard::tasks
