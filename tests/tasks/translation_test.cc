// SPDX-License-Identifier: Apache-2.0
// Pairs of sentences, the model's folder, and a toy language that is learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <set>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/io/safetensors.h"
#include "regard/nn/transformer.h"
#include "regard/tasks/translation_task.h"
#include "regard/tasks/translator.h"
#include "regard/train/training.h"

namespace regard::tasks {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

text::Pairs pairs_of(std::vector<std::string> sources,
                     std::vector<std::string> targets) {
  return {std::move(sources), std::move(targets)};
}

TEST(TranslationData, CountsWhatItLeavesOut) {
  const auto pairs =
      pairs_of({"a b", "", "a", "a a a a"}, {"b", "a", " ", "b"});
  const auto tokenizer =
      text::make_word_tokenizer(std::vector<std::string>{"a a b"}, {});
  const TranslationData data = encode_pairs(pairs, *tokenizer, {}, 3);
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.empty, 2);
  EXPECT_EQ(data.overlong, 1);
  EXPECT_THAT(data.sources.sequence(0), ElementsAre(3, 4, text::kEnd));
  EXPECT_THAT(data.targets.sequence(0), ElementsAre(4));
}

TEST(TranslationData, GoesBothWaysWithATagInFront) {
  const Languages languages{"en", "de", true};
  const auto tokenizer =
      text::make_word_tokenizer(std::vector<std::string>{"a a b"},
                                {.min_count = 1, .tags = languages.tags()});
  const TranslationData data =
      encode_pairs(pairs_of({"a"}, {"b c"}), *tokenizer, languages, 10);
  const std::int32_t en = tokenizer->id_of("<2en>");
  const std::int32_t de = tokenizer->id_of("<2de>");
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(data.unknown, 1);
  EXPECT_THAT(data.sources.sequence(0), ElementsAre(de, 5, text::kEnd));
  EXPECT_THAT(data.sources.sequence(1),
              ElementsAre(en, 6, text::kUnknown, text::kEnd));
  EXPECT_THAT(data.targets.sequence(1), ElementsAre(5));
}

TEST(TranslationData, MayGoBackAlone) {
  const Languages languages{"en", "de", true};
  const auto tokenizer =
      text::make_word_tokenizer(std::vector<std::string>{"a b"},
                                {.min_count = 1, .tags = languages.tags()});
  const auto pairs = pairs_of({"a", ""}, {"b", "b"});
  TranslationData data = encode_pairs(pairs, *tokenizer, languages, 10);
  append(data, encode_pairs(pairs, *tokenizer, languages, 10,
                            PairDirections::kBackOnly));
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data.empty, 2);
  EXPECT_THAT(data.sources.sequence(2),
              ElementsAre(tokenizer->id_of("<2en>"), 6, text::kEnd));
  EXPECT_THAT(data.targets.sequence(2), ElementsAre(5));
  EXPECT_THROW(
      encode_pairs(pairs, *tokenizer, {}, 10, PairDirections::kBackOnly),
      InvalidArgument);
}

TEST(TranslationData, BatchesAreShiftedByOne) {
  TranslationData data;
  data.sources = {{5, 2, 6, 7, 2}, {0, 2, 5}};
  data.targets = {{8, 9, 3}, {0, 2, 3}};
  const nn::TranslationBatch batch =
      make_translation_batch(data, std::vector<std::int64_t>{1, 0});
  EXPECT_THAT(batch.source.tokens, ElementsAre(6, 7, 2, 5, 2));
  EXPECT_THAT(batch.source.offsets, ElementsAre(0, 3, 5));
  EXPECT_THAT(batch.target.tokens, ElementsAre(1, 3, 1, 8, 9));
  EXPECT_THAT(batch.target.offsets, ElementsAre(0, 2, 5));
  EXPECT_THAT(batch.target_out, ElementsAre(3, 2, 8, 9, 2));
}

TEST(TranslationData, HoldsOutByTheSourceAlone) {
  text::Pairs pairs;
  for (int i = 0; i < 3000; ++i) {
    pairs.sources.push_back("sentence " + std::to_string(i / 3));
    pairs.targets.push_back(std::to_string(i));
  }
  const auto [kept, held_out] = split_pairs(pairs, 0.1);
  EXPECT_EQ(kept.sources.size() + held_out.sources.size(), 3000u);
  EXPECT_NEAR(static_cast<double>(held_out.sources.size()), 300, 60);
  const std::set<std::string> a(kept.sources.begin(), kept.sources.end());
  for (const std::string& source : held_out.sources) {
    EXPECT_FALSE(a.contains(source));
  }
  // FNV-1a of "a", as its authors publish it.
  EXPECT_EQ(hash_of("a"), 0xAF63DC4C8601EC8Cu);
  EXPECT_THAT([&] { split_pairs(pairs, 1.0); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the share must be in [0, 1); got 1")));
}

TranslatorConfig small_config(std::int64_t vocab) {
  TranslatorConfig config;
  config.model.source_vocab = config.model.target_vocab = vocab;
  config.model.model_dim = 32;
  config.model.heads = 4;
  config.model.encoder_layers = 2;
  config.model.decoder_layers = 2;
  config.model.feed_forward_dim = 64;
  config.model.final_norm = false;
  config.model.shared_embeddings = true;
  config.model.tied_output = true;
  config.model.dropout = 0.05f;
  config.model.label_smoothing = 0.1f;
  config.languages = {"toy", "yot", false};
  return config;
}

// A language of ten words, and one that has other words in reverse order.
text::Pairs toy_language(int count, std::uint64_t seed) {
  const char* words[] = {"sun",  "moon", "tree",  "fish", "bird",
                         "hand", "fire", "stone", "rain", "road"};
  const char* other[] = {"so", "lu", "ar", "pe", "av",
                         "ma", "fe", "pi", "pl", "vi"};
  Random random(seed);
  text::Pairs pairs;
  for (int i = 0; i < count; ++i) {
    std::string source;
    std::string target;
    for (std::int64_t n = 2 + random.below(5); n > 0; --n) {
      const std::int64_t word = random.below(10);
      // The target grows at its front.
      if (!source.empty()) source.push_back(' ');
      source.append(words[word]);
      if (!target.empty()) target.insert(target.begin(), ' ');
      target.insert(0, other[word]);
    }
    pairs.sources.push_back(source);
    pairs.targets.push_back(target);
  }
  return pairs;
}

std::unique_ptr<text::Tokenizer> words_of(const text::Pairs& pairs) {
  std::vector<std::string> lines = pairs.sources;
  lines.insert(lines.end(), pairs.targets.begin(), pairs.targets.end());
  return text::make_word_tokenizer(lines);
}

train::TrainingOptions toy_options(std::int64_t updates) {
  train::TrainingOptions options;
  options.max_updates = updates;
  options.batch_tokens = 500;
  options.schedule.peak = 0.005;
  options.schedule.warmup = 100;
  options.milestone = 50;
  options.average = 3;
  options.threads = {.count = 1};
  return options;
}

struct Losses : train::Observer {
  std::vector<double> values;
  void on_update(const train::UpdateReport& report) override {
    values.push_back(report.loss);
  }
};

// From pairs to a folder, from the folder to translations that are right.
TEST(Translation, LearnsAToyLanguageThatTurnsSentencesAround) {
  const TemporaryFolder folder;
  const text::Pairs training = toy_language(2000, 1);
  const text::Pairs unseen = toy_language(60, 2);
  const auto tokenizer = words_of(training);
  const TranslatorConfig config = small_config(tokenizer->size());
  const TranslationData data =
      encode_pairs(training, *tokenizer, config.languages, 50);
  const TranslationData held_out =
      encode_pairs(unseen, *tokenizer, config.languages, 50);
  nn::Transformer model(config.model, 1);
  TranslationTask task(model, data, held_out);
  train::Observer nobody;
  const auto result = train::train(task, toy_options(800), folder / "run",
                                   train::Start::kNew, nobody);
  save_translator(folder.path(), config, *tokenizer, result.weights,
                  DType::kFloat16);

  const Translator translator = Translator::load(folder.path());
  const auto found =
      translator.translate(unseen.sources, {.beam = 3, .nbest = 2});
  int right = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), 2u);
    EXPECT_GE(found[i][0].score, found[i][1].score);
    if (found[i][0].text == unseen.targets[i]) ++right;
  }
  EXPECT_GE(right, 54) << "of 60";

  // Alone, in other company, on other threads: the same.
  for (std::size_t i = 0; i < 5; ++i) {
    const auto alone = translator.translate(
        std::vector<std::string>{unseen.sources[i]},
        {.beam = 3, .nbest = 2, .batch = 1, .threads = {.count = 2}});
    EXPECT_EQ(alone[0][0].text, found[i][0].text);
    EXPECT_EQ(alone[0][0].score, found[i][0].score);
  }

  // Each word looked most at the one it comes from.
  const auto aligned = translator.translate(
      std::vector<std::string>{"sun fish road", ""}, {.align = true});
  const Translation& first = aligned[0][0];
  EXPECT_EQ(first.text, "vi pe so");
  EXPECT_THAT(first.source_pieces, ElementsAre("sun", "fish", "road", "</s>"));
  EXPECT_THAT(first.target_pieces, ElementsAre("vi", "pe", "so"));
  ASSERT_EQ(first.alignment.size(), 3u);
  for (const auto& row : first.alignment) {
    ASSERT_EQ(row.size(), 4u);
    float sum = 0;
    for (const float weight : row) sum += weight;
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  // A blank sentence stays blank.
  ASSERT_EQ(aligned[1].size(), 1u);
  EXPECT_EQ(aligned[1][0].text, "");
}

// The first ten losses of a small run, as they were recorded. Whatever changes
// them changes what is learnt; REGARD_RECORD=1 writes them anew.
TEST(Translation, TheFirstTenLossesAreThoseOfTheRecord) {
  const TemporaryFolder folder;
  const text::Pairs training = toy_language(300, 1);
  const auto tokenizer = words_of(training);
  TranslatorConfig config = small_config(tokenizer->size());
  config.model.dropout = 0.3f;
  config.model.attention_dropout = 0.1f;
  const TranslationData data =
      encode_pairs(training, *tokenizer, config.languages, 50);
  const std::string path =
      std::string(REGARD_SOURCE_DIR) + "/tests/golden/translation_losses.txt";
  for (const int threads : {1, 2, 3}) {
    nn::Transformer model(config.model, 1);
    model.set_threads({.count = threads});
    TranslationTask task(model, data, {});
    Losses losses;
    train::TrainingOptions options = toy_options(10);
    options.threads = {.count = threads};
    options.accumulate = 2;
    train::train(task, options, folder / std::to_string(threads),
                 train::Start::kNew, losses);
    ASSERT_EQ(losses.values.size(), 10u);
    if (std::getenv("REGARD_RECORD") != nullptr) {
      std::ofstream out(path);
      out.precision(17);
      for (const double loss : losses.values) out << loss << '\n';
    }
    std::ifstream in(path);
    for (const double loss : losses.values) {
      double recorded = 0;
      ASSERT_TRUE(in >> recorded) << path;
      EXPECT_NEAR(loss, recorded, 1e-7 * recorded);
    }
  }
}

TEST(Translator, NamesWhatIsWrongWithItsFolder) {
  const TemporaryFolder folder;
  const auto load = [&] { Translator::load(folder.path()); };
  EXPECT_THAT(load, ThrowsMessage<ParseError>(
                        HasSubstr("is no model: it has no config.json")));
  const auto tokenizer = words_of(toy_language(50, 1));
  TranslatorConfig config = small_config(tokenizer->size());
  const nn::Transformer model(config.model, 1);
  save_translator(folder.path(), config, *tokenizer, model.parameters());
  EXPECT_NO_THROW(load());

  const std::string good = read_text(folder / "config.json");
  const auto refusal = [&](std::string from, const std::string& to,
                           const char* message) {
    std::string text = good;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    write_text(folder / "config.json", text);
    EXPECT_THAT(load, ThrowsMessage<ParseError>(HasSubstr(message)));
  };
  refusal("{", "", "config.json': the file must be JSON");
  refusal("\"kind\"", "\"sort\"", "is no config of a translator");
  // To write such a value out, or to copy it, would take all of the stack.
  refusal("\"regard translator\"",
          std::string(100000, '[') + std::string(100000, ']'),
          "config.json': the file may be nested 64 deep at most");
  refusal("regard translator", "other", "is of another kind of model");
  refusal("\"relu\"", "\"sine\"", "has an unknown name: 'sine'");
  refusal("\"heads\": 4", "\"heads\": -4",
          "heads must be an integer from 1 to 16777216; got -4");
  refusal("\"encoder_layers\": ", "\"encoder_layers\": 99999",
          "encoder_layers must be an integer from 1 to 1024; got 99999");
  refusal("\"heads\": 4", "\"heads\": 5", "do not fit each other");
  refusal("\"model_dim\": 32", "\"model_dim\": 64", "do not fit each other");
  refusal("\"vocab\": 23", "\"vocab\": 24",
          "the model has 24 pieces, the tokenizer 23");
  refusal("\"vocab\": 23", "\"source_vocab\": 23, \"target_vocab\": 9",
          "the model has 9 pieces, the tokenizer 23");
  write_text(folder / "config.json", good);
  save_safetensors(folder / "model.safetensors", {});
  EXPECT_THAT(load,
              ThrowsMessage<ParseError>(HasSubstr("do not fit each other")));
}

TEST(TranslatorConfig, KeepsTablesThatAreNotSharedAndAnOutputBias) {
  const TranslatorConfig usual = small_config(23);
  EXPECT_THAT(config_to_json(usual), ::testing::Not(HasSubstr("output_bias")));
  TranslatorConfig config = usual;
  config.model.target_vocab = 40;
  config.model.shared_embeddings = config.model.tied_output = false;
  config.model.output_bias = true;
  config.model.embedding_scale = 2;
  config.model.activation = nn::Activation::kSilu;
  const nn::TransformerConfig read =
      config_from_json(config_to_json(config), "config.json").model;
  EXPECT_EQ(read.source_vocab, 23);
  EXPECT_EQ(read.target_vocab, 40);
  EXPECT_FALSE(read.shared_embeddings);
  EXPECT_FALSE(read.tied_output);
  EXPECT_TRUE(read.output_bias);
  EXPECT_EQ(read.embedding_scale, 2.0f);
  EXPECT_EQ(read.activation, nn::Activation::kSilu);
}

TEST(TranslatorConfig, OfASummarizerIsOfAnotherKindAndMayCopy) {
  TranslatorConfig config = small_config(23);
  EXPECT_THAT(config_to_json(config), ::testing::Not(HasSubstr("copy")));
  config.whole_texts = config.model.copy = true;
  const std::string text = config_to_json(config);
  EXPECT_THAT(text, HasSubstr("\"kind\": \"regard summarizer\""));
  const TranslatorConfig read = config_from_json(text, "config.json");
  EXPECT_TRUE(read.whole_texts);
  EXPECT_TRUE(read.model.copy);
}

TEST(TranslatorConfig, MaySayHowLengthCounts) {
  TranslatorConfig config = small_config(23);
  EXPECT_THAT(config_to_json(config), ::testing::Not(HasSubstr("penalty")));
  config.length_penalty = 1.4;
  const std::string text = config_to_json(config);
  EXPECT_EQ(config_from_json(text, "config.json").length_penalty, 1.4);
  std::string wrong = text;
  wrong.replace(wrong.find("1.4"), 3, "1e9");
  EXPECT_THAT([&] { config_from_json(wrong, "config.json"); },
              ThrowsMessage<ParseError>(HasSubstr(
                  "'config.json': length_penalty must be from -10 to 10")));
  config.length_penalty = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT([&] { config_to_json(config); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "config_to_json: length_penalty must be from -10 to 10; "
                  "got nan")));
}

// Longer outputs have more of it to divide by.
TEST(Translator, TakesTheLengthPenaltyOfItsConfigUnlessAskedOtherwise) {
  const auto translator = [](double penalty) {
    TranslatorConfig config = small_config(23);
    config.length_penalty = penalty;
    std::string words;
    for (char c = 'a'; c <= 't'; ++c) words += std::string(1, c) + " ";
    nn::Transformer model(config.model, 3);
    return Translator(
        config, text::make_word_tokenizer(std::vector<std::string>{words}),
        model.parameters());
  };
  const std::vector<std::string> sentences{"a b c"};
  const auto score = [&](double penalty, const TranslateOptions& options) {
    return translator(penalty).translate(sentences, options)[0][0].score;
  };
  const TranslateOptions asked{.beam = 1, .length_penalty = 2};
  EXPECT_NE(score(2, {.beam = 1}), score(1, {.beam = 1}));
  EXPECT_EQ(score(2, {.beam = 1}), score(1, asked));
  EXPECT_EQ(score(1, asked), score(5, asked));
}

TEST(Translator, TracesTheTextAloneWhereAllOfItIsCopied) {
  auto tokenizer = words_of(toy_language(50, 1));
  const TranslatorConfig config = small_config(tokenizer->size());
  const nn::Transformer model(config.model, 1);
  const Translator translator(config, std::move(tokenizer), model.parameters());
  const std::string smile = " \xF0\x9F\x98\x80";
  const TranslationTrace copied = translator.trace(smile);
  EXPECT_EQ(copied.text, smile);
  EXPECT_TRUE(copied.source.empty() && copied.written.empty());
  EXPECT_FALSE(translator.trace("sun" + smile).source.empty());
  EXPECT_THAT([&] { translator.trace(" "); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the sentence must have a word; it is blank")));
}

TEST(TranslationPairs, OfATableHaveTargetsOnOneLine) {
  const TemporaryFolder folder;
  write_text(folder / "t.csv",
             "id,told,short\n1,\"a b\nc\",\"d\r\ne\"\n2,f,g\n");
  const text::Pairs pairs = read_pair_table(folder / "t.csv", "told", "short");
  EXPECT_THAT(pairs.sources, ::testing::ElementsAre("a b\nc", "f"));
  EXPECT_THAT(pairs.targets, ::testing::ElementsAre("d e", "g"));
  EXPECT_THAT([&] { read_pair_table(folder / "t.csv", "told", "long"); },
              ThrowsMessage<ParseError>(HasSubstr("long")));
}

TEST(TranslationPairs, EndASentenceWhereALineOfASourceEnds) {
  const std::vector<std::string> words = {"a b c"};
  const auto tokenizer = text::make_word_tokenizer(words);
  const std::int32_t a = tokenizer->id_of("a"), b = tokenizer->id_of("b"),
                     c = tokenizer->id_of("c");
  for (const char* text : {"a b\nc", "a b\r\nc\r\n", "\n\na b\n \nc\n"}) {
    EXPECT_THAT(encode_lines(*tokenizer, text),
                ::testing::ElementsAre(a, b, text::kEnd, c))
        << text;
  }
  EXPECT_THAT(encode_lines(*tokenizer, ""), ::testing::IsEmpty());
}

TEST(Translator, RefusesOptionsThatMakeNoSense) {
  auto tokenizer = words_of(toy_language(50, 1));
  TranslatorConfig config = small_config(tokenizer->size());
  config.model.max_length = 8;
  const nn::Transformer model(config.model, 1);
  const Translator translator(config, std::move(tokenizer), model.parameters());
  const auto refusal = [&](const TranslateOptions& options,
                           const std::string& sentence, const char* message) {
    EXPECT_THAT(
        [&] {
          translator.translate(std::vector<std::string>{sentence}, options);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  refusal({.beam = 0}, "sun", "the beam must be from 1 to 1000; got 0");
  refusal({.beam = 2, .nbest = 3}, "sun",
          "nbest must be from 1 to the beam, 2");
  refusal({.batch = 0}, "sun", "batch positive; got 0 and 0");
  refusal({.length_penalty = std::numeric_limits<double>::quiet_NaN()}, "sun",
          "length_penalty must be from -10 to 10; got nan");
  refusal({.length_penalty = 11}, "sun", "from -10 to 10; got 11");
  refusal({.to = "de"}, "sun", "the model translates into yot; got 'de'");
  refusal({}, "sun sun sun sun sun sun sun sun",
          "a sentence may have at most 8 pieces; sentence 1 has 9");
  refusal({}, "\xFF", "the line must be UTF-8");
  config.languages.both_directions = true;
  const Translator both(config, words_of(toy_language(50, 1)),
                        model.parameters());
  EXPECT_THAT([&] { both.translate(std::vector<std::string>{"sun"}, {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "the model translates into toy and yot; say which: got ''")));
}

}  // namespace
}  // namespace regard::tasks
