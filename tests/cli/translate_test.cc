// SPDX-License-Identifier: Apache-2.0
// regard train translate, regard translate and regard score, as users call
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/run_program.h"
#include "cli/training_screen.h"
#include "io/files.h"

namespace regard::test {
namespace {

namespace fs = std::filesystem;
using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

class TranslateCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string sources;
    std::string targets;
    const char* words[] = {"sun", "moon", "tree", "fish"};
    for (int i = 0; i < 256; ++i) {
      const char* a = words[i % 4];
      const char* b = words[i / 4 % 4];
      const char* c = words[i / 16 % 4];
      sources.append(a).append(" ").append(b).append(" ").append(c) += '\n';
      targets.append(c).append(" ").append(b).append(" ").append(a) += '\n';
    }
    write_text(folder_ / "a", sources);
    write_text(folder_ / "b", targets);
  }

  Arguments training(const std::string& updates, const Arguments& more = {}) {
    Arguments all = {"train",
                     "translate",
                     "--src",
                     folder_ / "a",
                     "--tgt",
                     folder_ / "b",
                     "--out",
                     folder_ / "model",
                     "--pieces",
                     "words",
                     "--dim",
                     "16",
                     "--ffn",
                     "32",
                     "--heads",
                     "2",
                     "--encoder-layers",
                     "1",
                     "--decoder-layers",
                     "1",
                     "--batch-tokens",
                     "100",
                     "--updates",
                     updates,
                     "--warmup",
                     "10",
                     "--threads",
                     "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(TranslateCommand, MakesAFolderThatTranslates) {
  const Ended trained = run_regard(training("40"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("loss over updates: * training"));
  EXPECT_THAT(trained.out, HasSubstr("done after 40 updates"));
  const std::string model = folder_ / "model";
  for (const char* name :
       {"config.json", "model.safetensors", "vocabulary.txt", "README.md"}) {
    EXPECT_TRUE(fs::exists(fs::path(model) / name)) << name;
  }
  EXPECT_THAT(read_text(fs::path(model) / "README.md"),
              HasSubstr("# Translator: source to target"));

  // In order, and a blank line stays.
  write_text(folder_ / "in", "sun moon\n\ntree\n");
  const Ended translated =
      run_regard({"translate", "--model", model, "--input", folder_ / "in"});
  ASSERT_EQ(translated.code, 0) << translated.err;
  std::istringstream lines(translated.out);
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  std::getline(lines, third);
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(second, "");
  const Ended alone = run_regard({"translate", "--model", model, "tree"});
  EXPECT_EQ(alone.out, third + "\n");

  const Ended best = run_regard(
      {"translate", "--model", model, "--nbest", "2", "--beam", "2", "sun"});
  EXPECT_THAT(best.out, AllOf(HasSubstr("1\t-"), HasSubstr("\n1\t-")));

  const Ended json =
      run_regard({"translate", "--model", model, "--align", "--json", "sun"});
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed.at("source_pieces"),
            (std::vector<std::string>{"sun", "</s>"}));
  EXPECT_EQ(parsed.at("alignment").size(), parsed.at("target_pieces").size());

  const Ended picture =
      run_regard({"translate", "--model", model, "--align", "sun moon"});
  EXPECT_THAT(picture.out,
              AllOf(HasSubstr("\n    s o"), HasSubstr("\n0 ..::--==++++")));

  const Ended wrong =
      run_regard({"translate", "--model", model, "--to", "fr", "sun"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err,
              HasSubstr("--to: the model translates into target; got 'fr'"));
}

// Barely trained, but what it was asked for can be seen.
TEST_F(TranslateCommand, ChineseIsKnownByItsScript) {
  write_text(folder_ / "b", [] {
    std::string targets;
    for (int i = 0; i < 256; ++i) targets += "\xE5\xA4\xAA \xE9\x98\xB3\n";
    return targets;
  }());
  const Ended trained = run_regard(training(
      "30", {"--src-lang", "en", "--tgt-lang", "zh", "--both-directions"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string model = folder_ / "model";
  const auto translated = [&](const Arguments& more) {
    Arguments all = {"translate", "--model", model};
    all.insert(all.end(), more.begin(), more.end());
    return run_regard(all).out;
  };
  const std::string chinese = "\xE5\xA4\xAA \xE9\x98\xB3";
  EXPECT_EQ(translated({"sun", chinese, "moon"}),
            translated({"--to", "zh", "sun"}) +
                translated({"--to", "en", chinese}) +
                translated({"--to", "zh", "moon"}));
}

TEST_F(TranslateCommand, SavesOnCtrlCAndGoesOn) {
  // --preserve-status: what the program itself ends with.
  std::string command =
      "timeout --foreground --preserve-status -s INT 2 " REGARD_PROGRAM;
  for (const std::string& argument : training("100000")) {
    command += " '" + argument + "'";
  }
  command += " > /dev/null 2> '" + (folder_ / "err").string() + "'";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_THAT(
      read_text(folder_ / "err"),
      AllOf(HasSubstr("stopped and saved after update"),
            HasSubstr("--resume continues it. The model so far is in")));
  const Ended used =
      run_regard({"translate", "--model", folder_ / "model", "sun"});
  EXPECT_EQ(used.code, 0) << used.err;
  const Ended again = run_regard(training("100000"));
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("continue it with --resume"));
  // The end may move; what is learnt may not.
  const Ended ended = run_regard(training("1", {"--resume"}));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming after update"));
  const Ended other = run_regard(training("1", {"--resume", "--lr", "0.1"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("goes on with the settings that it began with; "
                              "learning rate was "),
                    HasSubstr(", now 0.1\n")));
  write_text(folder_ / "a", "sun\nmoon\n");
  write_text(folder_ / "b", "sol\nluna\n");
  EXPECT_THAT(run_regard(training("1", {"--resume", "--norm-first"})).err,
              AllOf(HasSubstr("; norm first was false, now true"),
                    HasSubstr("; training source text was "),
                    HasSubstr(", now 2 examples (hash "),
                    Not(HasSubstr("learning rate"))));
}

TEST_F(TranslateCommand, ATrainingThatWasStoppedEarlySaysHowToGoOn) {
  std::string command = "timeout --foreground -s INT 2 " REGARD_PROGRAM;
  for (const std::string& argument :
       training("100000", {"--validate-every", "100000"})) {
    command += " '" + argument + "'";
  }
  command += " > /dev/null 2> '" + (folder_ / "err").string() + "'";
  (void)std::system(command.c_str());
  EXPECT_THAT(read_text(folder_ / "err"),
              HasSubstr("There is no model before the first milestone"));
  EXPECT_THAT(
      run_regard({"translate", "--model", folder_ / "model", "sun"}).err,
      HasSubstr("holds an unfinished training and no model yet; the command "
                "that began it goes on with --resume"));
}

// A rate that changes no weight leaves the model as it was, whatever the pairs:
// so it began with these weights and these pieces.
TEST_F(TranslateCommand, TrainsAModelFurtherOnOtherPairs) {
  ASSERT_EQ(run_regard(training("40", {"--average", "1"})).code, 0);
  write_text(folder_ / "c", "sun fish\nmoon star\n");
  write_text(folder_ / "d", "fish sun\nstar moon\n");
  const fs::path model = folder_ / "model";
  const auto further = [&](const Arguments& more) {
    Arguments all = {"train",         "translate",
                     "--src",         folder_ / "c",
                     "--tgt",         folder_ / "d",
                     "--valid-share", "0",
                     "--out",         folder_ / "on",
                     "--updates",     "3",
                     "--lr",          "1e-30",
                     "--warmup",      "0",
                     "--average",     "1",
                     "--threads",     "1"};
    all.insert(all.end(), more.begin(), more.end());
    return run_regard(all);
  };
  const Ended ended = further({"--begin-with", model, "--dropout", "0.5"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* name : {"model.safetensors", "vocabulary.txt"}) {
    EXPECT_TRUE(read_text(folder_ / "on" / name) == read_text(model / name))
        << name;
  }
  EXPECT_THAT(
      read_text(folder_ / "on/config.json"),
      AllOf(HasSubstr("\"model_dim\": 16"), HasSubstr("\"dropout\": 0.5")));
  EXPECT_THAT(read_text(folder_ / "on/README.md"),
              AllOf(HasSubstr("- Begun with: the model 'model'"),
                    HasSubstr("pieces (taken over)")));

  // To go on means to have begun with the same.
  const Arguments same = {"--begin-with", model, "--dropout", "0.5",
                          "--resume"};
  EXPECT_EQ(further(same).code, 0);
  fs::remove_all(model);
  ASSERT_EQ(run_regard(training("1", {"--average", "1", "--seed", "9"})).code,
            0);
  const Ended other = further(same);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("with the settings that it began with"));

  const Ended none = further({"--begin-with", folder_ / "none", "--resume"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("none' is not there"));
  // What the model says already cannot be said again.
  for (const char* option : {"--dim", "--heads", "--vocab", "--tokenizer"}) {
    const Ended refused = further({"--begin-with", model, option, "16"});
    EXPECT_EQ(refused.code, 2) << option;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("--begin-with"), HasSubstr(option)));
  }
}

TEST_F(TranslateCommand, TakesThePiecesOfAFolder) {
  ASSERT_EQ(run_regard(training("1")).code, 0);
  const std::string pieces = read_text(folder_ / "model/vocabulary.txt");
  fs::rename(folder_ / "model", folder_ / "first");
  write_text(folder_ / "a", "sun\n");
  write_text(folder_ / "b", "moon\n");
  Arguments arguments =
      training("1", {"--valid-share", "0", "--tokenizer", folder_ / "first"});
  EXPECT_EQ(run_regard(arguments).code, 2);  // --pieces says how to learn them
  const auto at = std::find(arguments.begin(), arguments.end(), "--pieces");
  arguments.erase(at, at + 2);
  const Ended ended = run_regard(arguments);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(read_text(folder_ / "model/vocabulary.txt"), pieces);
}

TEST_F(TranslateCommand, ShowsABarOnATerminal) {
  const Ended ended =
      run_on_terminal(training("30"), 80, {{"TERM", "xterm-256color"}});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("\r\x1B[K["), HasSubstr("/30  loss "),
                               HasSubstr(" tokens/s"), HasSubstr(" left")));
}

TEST_F(TranslateCommand, CountsThePairsThatItLeavesOut) {
  write_text(folder_ / "a", "a b\n\nc\nd d d d d d d d\ne\n");
  write_text(folder_ / "b", "x y\nz\n \nw\nv\n");
  const Ended ended =
      run_regard(training("2", {"--valid-share", "0", "--max-length", "5"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("training: 2 examples, 2 left out as blank, "
                                   "1 left out as too long"));
}

TEST_F(TranslateCommand, NamesFilesThatDoNotFit) {
  write_text(folder_ / "b", "one line\n");
  const Ended unequal = run_regard(training("2"));
  EXPECT_EQ(unequal.code, 1);
  EXPECT_THAT(unequal.err,
              AllOf(HasSubstr("a' has 256 lines"), HasSubstr("b' has 1")));
  write_text(folder_ / "b", "\xFF\n");
  EXPECT_THAT(run_regard(training("2")).err,
              HasSubstr("must be UTF-8; line 1"));
  write_text(folder_ / "a", "");
  write_text(folder_ / "b", "");
  EXPECT_EQ(run_regard(training("2")).err,
            "regard: train translate: there are no pairs to learn from in '" +
                (folder_ / "a").string() + "'\n");
  EXPECT_FALSE(fs::exists(folder_ / "model"));
}

TEST_F(TranslateCommand, RefusesCommandLinesThatMakeNoSense) {
  const auto refusal = [](const Arguments& arguments, const char* message) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err, HasSubstr(message));
  };
  refusal({"train", "translate", "--out", "x"},
          "give --src and --tgt, or --tsv");
  refusal(training("2", {"--tsv", "t"}), "give --src and --tgt, or --tsv");
  refusal(training("2", {"--valid-src", "t"}), "give --valid-src and");
  refusal(training("0"), "--updates or --epochs must set an end");
  refusal(training("2",
                   {"--both-directions", "--src-lang", "x", "--tgt-lang", "x"}),
          "the languages need two names");
  refusal(training("2", {"--back-tsv", "t"}),
          "--back-tsv needs a model for both directions");
  refusal({"translate", "--model", "m", "--nbest", "6", "a"},
          "--nbest 6 needs a --beam as wide, not 5");
  refusal({"translate", "--model", "m", "--input", "f", "a"},
          "give sentences or --input, not both");
  for (const char* number : {"nan", "inf", "-1", "x"}) {
    const std::string got = "must be a finite number, 0 or more; got '" +
                            std::string(number) + "' (see regard tra";
    refusal(training("2", {"--lr", number}), ("--lr: " + got).c_str());
  }
  for (const char* number : {"nan", "inf", "-11", "x"}) {
    const std::string got =
        "--length-penalty: must be a number from -10 to 10; got '" +
        std::string(number) + "' (see regard tra";
    refusal({"translate", "--length-penalty", number, "a"}, got.c_str());
  }
  refusal(training("2", {"--dropout", "nan"}),
          "--dropout: must be a number from 0 to 0.95; got 'nan'");
  refusal(training("2", {"--coverage", "0.9"}),
          "--coverage: must be a number from 0.98 to 1; got '0.9'");
  refusal(training("2", {"--seed", "-1"}), "--seed: must be a whole number");
  EXPECT_FALSE(fs::exists(folder_ / "model"));
}

TEST_F(TranslateCommand, AFailedStartLeavesNothingThatALaterOneCouldUse) {
  const auto start = [&](const char* pieces, const Arguments& more) {
    Arguments arguments = training("2", more);
    *std::find(arguments.begin(), arguments.end(), "words") = pieces;
    return run_regard(arguments);
  };
  const fs::path model = folder_ / "model";
  EXPECT_EQ(start("words", {"--dim", "3"}).code, 2);  // --dim is given twice
  EXPECT_THAT(start("words", {"--max-length", "1"}).err,
              HasSubstr("no pair is left to learn from"));
  EXPECT_FALSE(fs::exists(model / "vocabulary.txt"));
  // What stands there without a checkpoint has other settings.
  write_text(model / "vocabulary.txt", "of another run\n");
  const Ended ended = start("words", {"--resume"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(run_regard({"translate", "--model", model, "sun"}).code, 0);
}

TEST_F(TranslateCommand, NamesAFolderThatIsNoModel) {
  const Ended ended =
      run_regard({"translate", "--model", folder_ / "none", "a"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.err, "regard: '" + (folder_ / "none").string() +
                           "' is not there; a model is a folder\n");
  const auto said = [&](const std::string& model) {
    const Ended refused = run_regard({"translate", "--model", model, "a"});
    EXPECT_EQ(refused.code, 1);
    return refused.err;
  };
  EXPECT_EQ(said(folder_ / "a"),
            "regard: '" + (folder_ / "a").string() +
                "' is a file and no model: a model is a folder with "
                "config.json, model.safetensors and a tokenizer\n");
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(said(folder_ / "empty"),
            "regard: '" + (folder_ / "empty").string() +
                "' is no model: it has no config.json\n");
  fs::create_directories(folder_ / "begun/training");
  EXPECT_EQ(said(folder_ / "begun"),
            "regard: '" + (folder_ / "begun").string() +
                "' holds an unfinished training and no model yet; the command "
                "that began it goes on with --resume\n");
  fs::create_directories(folder_ / "odd/config.json");
  EXPECT_THAT(run_regard({"translate", "--model", folder_ / "odd", "a"}).err,
              HasSubstr("odd/config.json': it is a folder"));
}

TEST_F(TranslateCommand, ALayerThatIsNotThereLeavesNothingHalfSaid) {
  ASSERT_EQ(run_regard(training("2")).code, 0);
  const Ended ended = run_regard({"translate", "--model", folder_ / "model",
                                  "--show", "--layer", "9", "sun"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err,
            "regard: --layer: there are layers 0 .. 0; got 9 (see regard "
            "translate --help)\n");
}

TEST_F(TranslateCommand, TheCardOfATrainingWithoutHeldOutPairsTellsNoLoss) {
  ASSERT_EQ(run_regard(training("2", {"--valid-share", "0"})).code, 0);
  EXPECT_THAT(read_text(folder_ / "model/README.md"),
              AllOf(HasSubstr("- Training: 2 updates"),
                    ::testing::Not(HasSubstr("held-out"))));
}

TEST_F(TranslateCommand, ScoresAFileAgainstItself) {
  // Three words have no quadruple: 0, as sacreBLEU says, and no NaN.
  const Ended brief = run_regard({"score", folder_ / "a", folder_ / "a"});
  EXPECT_EQ(brief.code, 0);
  EXPECT_THAT(brief.out, HasSubstr("BLEU 0.00"));
  write_text(folder_ / "c", "a b c d e\n");
  const Ended same = run_regard({"score", folder_ / "c", folder_ / "c"});
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.out,
              AllOf(HasSubstr("BLEU 100.00"), HasSubstr("chrF 100.00")));
  const Ended unequal = run_regard({"score", folder_ / "a", folder_ / "c"});
  EXPECT_EQ(unequal.code, 1);
  EXPECT_THAT(unequal.err, HasSubstr("has 256 lines"));
}

TEST_F(TranslateCommand, ScoresSummaries) {
  write_text(folder_ / "said", "a b c\n");
  write_text(folder_ / "wanted", "c a b\n");
  const Ended rouge = run_regard(
      {"score", "--metric", "rouge", folder_ / "said", folder_ / "wanted"});
  EXPECT_EQ(rouge.code, 0) << rouge.err;
  EXPECT_EQ(rouge.out,
            "ROUGE-1 100.00  precision 100.00  recall 100.00\n"
            "ROUGE-2 50.00  precision 50.00  recall 50.00\n"
            "ROUGE-L 66.67  precision 66.67  recall 66.67\n");
  for (const std::string option : {"--lowercase", "--tokenize=none"}) {
    const Ended refused =
        run_regard({"score", "--metric", "rouge", folder_ / "said",
                    folder_ / "wanted", option});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--metric rouge goes with no"));
  }
}

TEST(TrainingScreen, TellsTimesAndDrawsCurves) {
  EXPECT_EQ(cli::duration_text(12), "12 s");
  EXPECT_EQ(cli::duration_text(200), "3 min 20 s");
  EXPECT_EQ(cli::duration_text(7500), "2 h 05 min");
  const std::string curve =
      cli::draw_curve({{1, 4.0}, {50, 2.0}, {100, 1.0}}, {{100, 1.5}}, {});
  EXPECT_THAT(curve, AllOf(HasSubstr("4.00 |"), HasSubstr("1.00 |"),
                           HasSubstr("*"), HasSubstr("o held out")));
  EXPECT_EQ(cli::draw_curve({{1, 4.0}}, {}, {}), "");
}

}  // namespace
}  // namespace regard::test
