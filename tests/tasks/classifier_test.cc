// SPDX-License-Identifier: Apache-2.0
// Classification: its measure, its data, and a model that learns a rule.
#include "regard/tasks/classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/samples.h"
#include "support/refusal.h"

namespace regard::tasks {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using Strings = std::vector<std::string>;

// By hand, as scikit-learn's f1_score(average="macro") and confusion_matrix:
// a: precision 2/3, recall 2/2, F1 4/5; b: 1/1, 1/3, 1/2; c is only said: 0.
TEST(ClassificationScore, IsTheArithmeticOfScikitLearn) {
  const Strings truth = {"a", "b", "b", "a", "b"};
  const Strings said = {"a", "b", "a", "a", "c"};
  const ClassificationScore score = score_labels(truth, said);
  EXPECT_DOUBLE_EQ(score.accuracy, 3.0 / 5);
  EXPECT_DOUBLE_EQ(score.macro_f1, (4.0 / 5 + 1.0 / 2 + 0) / 3);
  ASSERT_EQ(score.labels.size(), 3u);
  EXPECT_DOUBLE_EQ(score.labels[0].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(score.labels[0].recall, 1);
  EXPECT_DOUBLE_EQ(score.labels[1].precision, 1);
  EXPECT_DOUBLE_EQ(score.labels[1].recall, 1.0 / 3);
  EXPECT_EQ(score.labels[1].count, 3);
  EXPECT_EQ(score.labels[2].recall, 0);
  EXPECT_THAT(score.confusion,
              ElementsAre(ElementsAre(2, 0, 0), ElementsAre(1, 1, 1),
                          ElementsAre(0, 0, 0)));
  EXPECT_THAT(test::refusal([&] { score_labels(truth, {}); }),
              StartsWith("score_labels: there must be as many labels said"));
}

TEST(SplitExamples, IsAFunctionOfTheSeedAndTheKeys) {
  Strings keys;
  for (int i = 0; i < 3000; ++i) keys.push_back(std::to_string(i / 3));
  const Split split = split_examples(keys, 0.1, 1);
  EXPECT_EQ(split.training.size() + split.held_out.size(), 3000u);
  EXPECT_NEAR(static_cast<double>(split.held_out.size()), 300, 90);
  std::set<std::string> held_out;
  for (const std::int64_t i : split.held_out) {
    held_out.insert(keys[static_cast<std::size_t>(i)]);
  }
  for (const std::int64_t i : split.training) {
    EXPECT_FALSE(held_out.contains(keys[static_cast<std::size_t>(i)]));
  }
  EXPECT_EQ(split_examples(keys, 0.1, 1).held_out, split.held_out);
  EXPECT_NE(split_examples(keys, 0.1, 2).held_out, split.held_out);
  EXPECT_TRUE(split_examples(keys, 0, 1).held_out.empty());
  EXPECT_THAT(test::refusal([&] { split_examples(keys, 1, 1); }),
              StartsWith("split_examples: the share must be in [0, 1); got 1"));
}

TEST(Samples, AreAFunctionOfTheSeedAndShareNoText) {
  for (const std::string& task : sample_tasks()) {
    if (task == "listops") continue;  // large, and with a test of its own
    const auto files = make_sample(task, 1);
    const auto again = make_sample(task, 1);
    const auto other = make_sample(task, 2);
    if (task == "caption") {
      // No picture comes twice; other tests read the captions.
      std::set<std::string> pictures;
      for (std::size_t f = 0; f < files.size(); ++f) {
        EXPECT_EQ(files[f].text, again[f].text);
        if (files[f].name.ends_with(".png")) pictures.insert(files[f].text);
      }
      EXPECT_EQ(pictures.size() + 4, files.size());
      EXPECT_NE(files[0].text, other[0].text);
      continue;
    }
    // A log and clips have their own tests.
    if (task == "recommend" || task == "video") continue;
    ASSERT_EQ(files.size(), 4u) << task;  // train, valid, test and README
    std::set<std::string> texts;
    std::size_t lines = 0;
    for (std::size_t f = 0; f < files.size(); ++f) {
      EXPECT_EQ(files[f].text, again[f].text);
      if (files[f].name == "README.md") continue;
      EXPECT_NE(files[f].text, other[f].text);
      std::istringstream in(files[f].text);
      std::string line;
      std::getline(in, line);  // the header
      while (std::getline(in, line)) {
        ++lines;
        texts.insert(line.substr(0, line.rfind('\t')));
      }
    }
    EXPECT_EQ(texts.size(), lines) << task;
  }
  EXPECT_THAT(test::refusal([] { make_sample("juggle", 1); }),
              StartsWith("make_sample: there is no sample for 'juggle'"));
}

// An expression by its rules once more, from its tokens.
std::int64_t list_ops_value(std::istringstream& in) {
  std::string token;
  in >> token;
  if (token.size() == 1) return std::stol(token);
  const std::string name = token;
  std::vector<std::int64_t> values;
  while (in >> std::ws && in.peek() != ']') {
    values.push_back(list_ops_value(in));
  }
  in >> token;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  if (name == "MIN") return values.front();
  if (name == "MAX") return values.back();
  if (name == "SM") {
    return std::accumulate(values.begin(), values.end(), std::int64_t{0}) % 10;
  }
  EXPECT_EQ(name, "MED");
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

TEST(ListOps, ComeToTheirLabels) {
  ListOpsOptions options{.train = 200, .others = 20};
  const auto files = make_list_ops(options);
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].text, make_list_ops(options)[0].text);
  options.brackets = false;
  const auto flat = make_list_ops(options);
  std::int64_t examples = 0;
  for (std::size_t f = 0; f < 3; ++f) {
    std::istringstream lines(files[f].text), flat_lines(flat[f].text);
    std::string line, flat_line;
    std::getline(lines, line);
    EXPECT_EQ(line, "text\tlabel");
    std::getline(flat_lines, flat_line);
    while (std::getline(lines, line)) {
      ++examples;
      const std::size_t tab = line.find('\t');
      const auto tokens = std::count(line.begin(), line.begin() + tab, ' ') + 1;
      EXPECT_GE(tokens, 500);
      EXPECT_LE(tokens, 2000);
      std::istringstream in(line.substr(0, tab));
      EXPECT_EQ(list_ops_value(in), std::stol(line.substr(tab + 1))) << line;
      EXPECT_TRUE((in >> std::ws).eof());
      // The same without its brackets.
      std::getline(flat_lines, flat_line);
      std::string rest;
      for (const char c : line) {
        if (c == ']') {
          rest.pop_back();
        } else {
          rest += c;
        }
      }
      EXPECT_EQ(flat_line, rest);
    }
  }
  EXPECT_EQ(examples, 240);
  EXPECT_THAT(
      test::refusal([] { make_list_ops({.min_length = 9, .max_length = 3}); }),
      StartsWith("make_list_ops: lengths must be positive, the smallest "
                 "first; got 9 and 3"));
}

ClassifierConfig small_config(std::int64_t vocab) {
  ClassifierConfig config;
  config.labels = {"no", "yes"};
  config.encoder.vocab = vocab;
  config.encoder.model_dim = 16;
  config.encoder.heads = 2;
  config.encoder.layers = 2;
  config.encoder.feed_forward_dim = 32;
  config.encoder.positions = nn::Positions::kLearned;
  config.encoder.max_length = 12;
  return config;
}

// "yes" where red comes before blue: only the order tells.
LabelledTexts order_rule(int count, std::uint64_t seed) {
  const char* fill[] = {"sun", "moon", "tree", "fish"};
  Random random(seed);
  LabelledTexts data;
  for (int i = 0; i < count; ++i) {
    const bool yes = random.below(2) == 0;
    std::string text = yes ? "red" : "blue";
    for (std::int64_t n = random.below(3); n >= 0; --n) {
      text += std::string(" ") + fill[random.below(4)];
    }
    text += yes ? " blue" : " red";
    data.texts.push_back(text);
    data.labels.push_back(yes ? "yes" : "no");
  }
  return data;
}

struct Learnt {
  LabelledTexts texts = order_rule(400, 1);
  std::unique_ptr<text::Tokenizer> tokenizer =
      text::make_running_word_tokenizer(texts.texts);
  ClassifierConfig config = small_config(tokenizer->size());
  StateDict weights;

  Learnt() {
    const ClassificationData training = encode_texts(texts, *tokenizer, config);
    const ClassificationData none;
    ExampleTask task = make_classification_task(config, training, none, 1);
    train::TrainingOptions options;
    options.max_updates = 150;
    options.batch_tokens = 400;
    options.schedule = {.kind = train::ScheduleKind::kConstant, .peak = 3e-3};
    const TemporaryFolder folder;
    train::Observer nobody;
    weights =
        train::train(task, options, folder.path(), train::Start::kNew, nobody)
            .weights;
  }

  Classifier model() const {
    return {config, text::make_running_word_tokenizer(texts.texts), weights};
  }
};

const Learnt& learnt() {
  static const Learnt once;
  return once;
}

TEST(Classifier, LearnsARuleThatOnlyTheOrderOfWordsTells) {
  const Classifier model = learnt().model();
  const LabelledTexts test = order_rule(200, 9);
  const auto found = model.classify(test.texts);
  int right = 0;
  for (std::size_t i = 0; i < test.texts.size(); ++i) {
    EXPECT_NEAR(found[i][0].probability + found[i][1].probability, 1, 1e-6);
    EXPECT_GE(found[i][0].probability, found[i][1].probability);
    right += test.labels[i] ==
             model.config().labels[static_cast<std::size_t>(found[i][0].label)];
  }
  EXPECT_GE(right, 195);
}

TEST(Classifier, ATextHasItsBitsAloneAndAfterTheDisk) {
  const Classifier model = learnt().model();
  const LabelledTexts test = order_rule(50, 9);
  const auto together = model.classify(test.texts, {.count = 3});
  const TemporaryFolder folder;
  save_classifier(folder.path(), model.config(), model.tokenizer(),
                  learnt().weights);
  const Classifier loaded = Classifier::load(folder.path());
  for (std::size_t i = 0; i < test.texts.size(); ++i) {
    const auto alone =
        loaded.classify(std::vector{test.texts[i]}, {.count = 1})[0];
    EXPECT_EQ(alone[0].label, together[i][0].label);
    EXPECT_EQ(alone[0].probability, together[i][0].probability);
  }
}

TEST(Classifier, ReadsBlankAndLongTexts) {
  const Classifier model = learnt().model();
  std::string longer;
  for (int i = 0; i < 50; ++i) longer += "red ";
  const std::string cut = longer.substr(0, 11 * 4);  // 11 words and the begin
  const auto found = model.classify(std::vector<std::string>{"", longer, cut});
  EXPECT_NEAR(found[0][0].probability + found[0][1].probability, 1, 1e-6);
  EXPECT_EQ(found[1][0].probability, found[2][0].probability);
}

TEST(ClassificationData, LeavesOutTheEndTheStartOrTheMiddle) {
  const auto tokenizer =
      text::make_running_word_tokenizer(Strings{"a b c d e f g h"}, {});
  ClassifierConfig config = small_config(tokenizer->size());
  config.encoder.max_length = 6;  // the begin, and five words of eight
  const auto read = [&](Truncation truncation) {
    config.truncation = truncation;
    const ClassificationData data = encode_texts(
        {{"a b c d e f g h", "a b c d e"}, {"yes", "no"}}, *tokenizer, config);
    EXPECT_EQ(data.cut, 1);
    EXPECT_EQ(data.texts[1].size(), 6u);
    return tokenizer->decode(data.texts[0]);
  };
  EXPECT_EQ(read(Truncation::kEnd), "a b c d e");
  EXPECT_EQ(read(Truncation::kStart), "d e f g h");
  EXPECT_EQ(read(Truncation::kMiddle), "a e f g h");
}

TEST(Classifier, TellsItsFolderWhatItLeavesOut) {
  ClassifierConfig config = learnt().model().config();
  config.truncation = Truncation::kMiddle;
  const TemporaryFolder folder;
  save_classifier(folder.path(), config, learnt().model().tokenizer(),
                  learnt().weights);
  EXPECT_EQ(Classifier::load(folder.path()).config().truncation,
            Truncation::kMiddle);
  std::string broken = read_text(folder.path() / "config.json");
  broken.replace(broken.find("middle"), 6, "centre");
  write_text(folder.path() / "config.json", broken);
  EXPECT_THAT(
      [&] { Classifier::load(folder.path()); },
      ThrowsMessage<ParseError>(HasSubstr(
          "truncation must be end, start or middle; it is \"centre\"")));
}

TEST(Explanation, IsWhatTheTextIsWithoutEachWord) {
  const Classifier model = learnt().model();
  const Explanation why = model.explain("Red sun, blue");
  Strings words;
  for (const WordWeight& word : why.words) words.push_back(word.word);
  EXPECT_THAT(words, ElementsAre("Red", "sun", ",", "blue"));
  EXPECT_EQ(why.words[3].begin, 9);
  const auto probability = [&](const std::string& text) {
    const auto all = model.classify(std::vector{text});
    for (const auto& found : all[0]) {
      if (found.label == why.labels[0].label) return found.probability;
    }
    return -1.0f;
  };
  const float whole = probability("Red sun, blue");
  EXPECT_EQ(why.labels[0].probability, whole);
  EXPECT_EQ(why.words[0].occlusion, whole - probability("sun, blue"));
  EXPECT_EQ(why.words[3].occlusion, whole - probability("Red sun,"));
  float sum = 0;
  for (const WordWeight& word : why.words) sum += word.rollout;
  EXPECT_GT(sum, 0.3f);
  EXPECT_LT(sum, 1.0f);  // the rest is the begin's
  EXPECT_TRUE(model.explain("").words.empty());
}

TEST(Explanation, OfBytesIsOfWordsWithoutTheirBlanks) {
  ClassifierConfig config = small_config(259);
  config.encoder.max_length = 100;
  const ClassificationData none;
  ExampleTask task = make_classification_task(config, none, none, 1);
  const Classifier model(config, text::make_byte_tokenizer(),
                         task.parameters());
  const Explanation why = model.explain("red  sun");
  ASSERT_EQ(why.words.size(), 3u);  // GPT-2's cut: a blank of its own
  EXPECT_EQ(why.words[0].word, "red");
  EXPECT_EQ(why.words[2].word, "sun");
  EXPECT_EQ(why.words[2].begin, 5);
}

TEST(ClassificationData, CountsAndRefuses) {
  const auto tokenizer =
      text::make_running_word_tokenizer(Strings{"a a b"}, {});
  ClassifierConfig config = small_config(tokenizer->size());
  config.encoder.max_length = 3;
  const ClassificationData data =
      encode_texts({{"a x b", "b"}, {"yes", "no"}}, *tokenizer, config);
  EXPECT_THAT(data.texts[0], ElementsAre(text::kBegin, 3, text::kUnknown));
  EXPECT_THAT(data.texts[1], ElementsAre(text::kBegin, 4));
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
  EXPECT_EQ(data.cut, 1);
  EXPECT_EQ(data.unknown, 1);
  EXPECT_THAT(test::refusal([&] {
                encode_texts({{"a"}, {"maybe"}, {17}}, *tokenizer, config);
              }),
              StartsWith("encode_texts: the label 'maybe' of line 17 is none "
                         "of the 2 that the model knows"));
}

TEST(ClassifierFolder, SaysWhatIsWrongWithIt) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& from, const std::string& to) {
    const Classifier model = learnt().model();
    save_classifier(folder.path(), model.config(), model.tokenizer(),
                    learnt().weights);
    std::string text = read_text(folder / "config.json");
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text(folder / "config.json", text.replace(at, from.size(), to));
  };
  const auto message = [&]() -> std::string {
    try {
      Classifier::load(folder.path());
    } catch (const ParseError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT([&] { Classifier::load(folder / "nothing"); },
              ThrowsMessage<IoError>(HasSubstr("is not there")));
  EXPECT_THAT(message(), HasSubstr("is no model: it has no config.json"));
  refusal("regard classifier", "regard juggler");
  EXPECT_THAT(message(), HasSubstr("must be of the kind 'regard classifier'; "
                                   "it is 'regard juggler'"));
  refusal("\"pooling\": \"mean\"", "\"pooling\": \"sum\"");
  EXPECT_THAT(message(), HasSubstr("encoder.pooling must be one of first, "
                                   "mean, attention, last; it is 'sum'"));
  refusal("\"model_dim\": 16", "\"model_dim\": 1000000");
  EXPECT_THAT(message(), HasSubstr("do not fit each other"));
  refusal("\"model_dim\": 16", "\"model_dim\": -1");
  EXPECT_THAT(message(), HasSubstr("model_dim must be"));
  refusal("\"dropout\": 0.0", "\"dropout\": 1e99");
  EXPECT_THAT(message(), HasSubstr("dropout must be in [0, 1)"));
  refusal("\"no\",", "\"yes\",");
  EXPECT_THAT(message(), HasSubstr("no label may be there twice"));
  refusal("\"no\",", "\"no\", \"maybe\",");
  EXPECT_THAT(message(), HasSubstr("the parameter head.bias must be float32"));
  refusal("{", "");
  EXPECT_THAT(message(), HasSubstr("must be JSON"));
}

}  // namespace
}  // namespace regard::tasks
