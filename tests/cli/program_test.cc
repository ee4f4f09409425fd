// SPDX-License-Identifier: Apache-2.0
// The program as a whole: its screens, exit codes and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "cli/text.h"
#include "regard/core/version.h"
#include "regard/io/npy.h"
#include "regard/io/safetensors.h"

namespace regard::test {
namespace {

using ::regard::testing::TemporaryFolder;
using ::regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const Environment kUtf8 = {{"LANG", "C.UTF-8"}};

int widest_line(const std::string& text) {
  int widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, cli::cells_of(line));
  }
  return widest;
}

TEST(Regard, AttendAloneShowsTheSentenceAndSaysThatNothingIsTrained) {
  const Ended ended = run_regard({"attend"}, kUtf8);
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, IsEmpty());
  EXPECT_THAT(ended.out,
              HasSubstr("Self attention over 11 words: 8 heads of 64, "
                        "embeddings of 512.\n"));
  EXPECT_THAT(ended.out, HasSubstr("The weights are untrained"));
  for (const char* part : {"head 0", "head 7", "\nThe ", "\nanimal ",
                           "\ndidn't ", "\nbecause ", "\ntired ", "\u2591"}) {
    EXPECT_THAT(ended.out, HasSubstr(part));
  }
  EXPECT_THAT(ended.out, Not(HasSubstr("head 8")));
  EXPECT_LE(widest_line(ended.out), 80);
  // The same every time.
  EXPECT_EQ(run_regard({"attend"}, kUtf8).out, ended.out);
  EXPECT_NE(run_regard({"attend", "--seed", "1"}, kUtf8).out, ended.out);
}

TEST(Regard, ShowsWhatACausalMaskHides) {
  const Ended ended = run_regard({"attend", "--mask", "causal", "--heads", "1",
                                  "--text", "\u6ce8\u610f it"});
  EXPECT_EQ(ended.code, 0);
  // The first word sees itself alone.
  EXPECT_THAT(ended.out, HasSubstr("\n\u6ce8 @@\n"));
  EXPECT_THAT(ended.out, HasSubstr("   \u6ce8\u610ft\n"));
}

TEST(Regard, WritesNoColorAndNoUnicodeOfItsOwnIntoAPipe) {
  const Ended ended =
      run_regard({"attend"}, {{"COLORTERM", "truecolor"}, {"TERM", "xterm"}});
  EXPECT_EQ(ended.code, 0);
  for (const char c : ended.out) {
    ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
  }
}

TEST(Regard, UsesTheColorsThatTheTerminalHas) {
  const auto screen = [](Environment environment) {
    environment.try_emplace("TERM", "xterm");
    const Ended ended = run_on_terminal({"attend"}, 100, environment);
    EXPECT_EQ(ended.code, 0);
    return ended.out;
  };
  EXPECT_THAT(screen({{"COLORTERM", "truecolor"}}), HasSubstr("\x1b[48;2;"));
  EXPECT_THAT(screen({{"COLORTERM", "24bit"}}), HasSubstr("\x1b[48;2;"));
  EXPECT_THAT(screen({{"TERM", "xterm-256color"}}), HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(screen({{"TERM", "xterm-256color"}, {"NO_COLOR", "1"}}),
              Not(HasSubstr("\x1b")));
  EXPECT_THAT(screen({{"COLORTERM", "truecolor"}, {"NO_COLOR", "1"}}),
              Not(HasSubstr("\x1b")));
  EXPECT_THAT(screen({{"TERM", "dumb"}}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(screen({{"TERM", "screen-256color"}, {"NO_COLOR", ""}}),
              HasSubstr("\x1b[48;5;"));
  // Eight colours are too few for a scale; shades are not.
  EXPECT_THAT(screen({}), Not(HasSubstr("\x1b")));
}

TEST(Regard, ObeysColorOnRequest) {
  EXPECT_THAT(run_regard({"attend", "--color", "always"}).out,
              HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(
      run_on_terminal({"attend", "--color", "never"}, 80, {{"TERM", "xterm"}})
          .out,
      Not(HasSubstr("\x1b")));
}

TEST(Regard, FillsTheWidthOfTheTerminalAndNoMore) {
  for (const int columns : {20, 40, 80, 100, 200}) {
    const Ended ended =
        run_on_terminal({"attend"}, columns, {{"TERM", "xterm"}});
    std::istringstream lines(without_color(ended.out));
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      const bool drawn = line.starts_with("because ");
      if (drawn) {
        EXPECT_LE(cli::cells_of(line), columns);
      }
    }
  }
  const std::string wide =
      without_color(run_on_terminal({"attend"}, 200, {{"TERM", "xterm"}}).out);
  EXPECT_THAT(wide, HasSubstr("head 7\r\n"));
  EXPECT_THAT(wide, Not(HasSubstr("head 3\r\n")));
}

TEST(Regard, HelpsWithAnExampleForEachCommand) {
  for (const char* command : {"attend", "layer", "explain", "info"}) {
    const Ended ended = run_regard({command, "--help"});
    EXPECT_EQ(ended.code, 0) << command;
    EXPECT_THAT(ended.err, IsEmpty());
    EXPECT_THAT(ended.out, HasSubstr(std::string("Usage: regard ") + command));
    EXPECT_THAT(ended.out, HasSubstr("Examples:\n"));
    EXPECT_THAT(ended.out, HasSubstr(std::string("\n  regard ") + command));
    EXPECT_LE(widest_line(ended.out), 80) << command;
  }
  const Ended ended = run_regard({"--help"});
  EXPECT_EQ(ended.code, 0);
  for (const char* command : {"attend", "layer", "explain", "info"}) {
    EXPECT_THAT(ended.out, HasSubstr(std::string("\n  regard ") + command));
  }
  EXPECT_LE(widest_line(ended.out), 80);
}

TEST(Regard, TellsItsVersion) {
  const Ended ended = run_regard({"--version"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, std::string("regard ") + version() + "\n");
}

TEST(Info, TellsTheTargetAndTheThreads) {
  const Ended ended = run_regard({"info"});
  EXPECT_EQ(ended.code, 0);
  for (const char* part :
       {"version ", "cpu ", "features ", "SIMD target ", "threads ", "MPI "}) {
    EXPECT_THAT(ended.out, HasSubstr(part));
  }
  const auto info = nlohmann::json::parse(run_regard({"info", "--json"}).out);
  EXPECT_EQ(info["version"], version());
  EXPECT_GE(info["threads"].get<int>(), 1);
  EXPECT_FALSE(info["simd_targets"].empty());
  EXPECT_EQ(info["simd_target"], info["simd_targets"][0]);
}

TEST(Explain, CountsWhatTheMaskLeaves) {
  const Ended ended = run_regard({"explain", "--heads", "2", "--len", "100",
                                  "--head-dim", "64", "--mask", "causal"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  // 2 heads of 100 * 101 / 2 pairs.
  EXPECT_THAT(ended.out, HasSubstr("10,100 of 20,000"));
  const auto json = nlohmann::json::parse(
      run_regard({"explain", "--heads",    "2", "--kv-heads",
                  "1",       "--len",      "1", "--kv-len",
                  "50",      "--head-dim", "8", "--value-head-dim",
                  "16",      "--batch",    "3", "--dtype",
                  "float64", "--threads",  "1", "--json"})
          .out);
  EXPECT_EQ(json["visible_pairs"], 3 * 2 * 50);
  EXPECT_EQ(json["flops"], 2.0 * (8 + 16) * 3 * 2 * 50);
  EXPECT_EQ(json["shape"]["value_head_dim"], 16);
  EXPECT_EQ(json["shape"]["kv_heads"], 1);
  EXPECT_EQ(json["path"], "plain");
  EXPECT_EQ(json["threads"], 1);
}

TEST(Explain, TellsWhatRanksSend) {
  const std::vector<std::string> call = {"explain",    "--len",  "4096",
                                         "--head-dim", "64",     "--mask",
                                         "causal",     "--ranks"};
  const auto with = [&call](std::vector<std::string> more) {
    more.insert(more.begin(), call.begin(), call.end());
    return run_regard(more);
  };
  EXPECT_THAT(with({"2"}).out,
              HasSubstr("ranks      2, by sequence: there are fewer key-value "
                        "heads than ranks\n"));
  EXPECT_THAT(with({"2", "--heads", "4"}).out,
              HasSubstr("ranks      2, by heads: "));
  EXPECT_THAT(with({"1"}).out, Not(HasSubstr("ranks")));
  const auto json =
      nlohmann::json::parse(with({"2", "--heads", "4", "--json"}).out)["ranks"];
  EXPECT_EQ(json["way"], "heads");
  // Half of the own q, k, v and out; and two lengths to the other rank.
  EXPECT_EQ(json["forward"]["sent"][0]["bytes"],
            4 * 2048 * 4 * 64 * 4 / 2 + 16);
  // Of two heads the second one, and what comes of the first, travel while
  // ranks compute.
  EXPECT_EQ(json["forward"]["sent"][0]["hidden_bytes"],
            4 * 2048 * 4 * 64 * 4 / 4);
  EXPECT_EQ(with({"2", "--dtype", "float64"}).code, 2);
}

// Every refusal: one line, and the exit code that says whose fault it is.
void expect_refusal(const std::vector<std::string>& arguments, int code,
                    const std::string& text) {
  const Ended ended = run_regard(arguments);
  EXPECT_EQ(ended.code, code) << ended.err;
  EXPECT_EQ(ended.err, "regard: " + text + "\n");
  EXPECT_THAT(ended.out, IsEmpty());
}

TEST(Usage, IsRefusedWithCodeTwo) {
  const std::string see = " (see regard attend --help)";
  expect_refusal(
      {"atend"}, 2,
      "there is no command 'atend'; did you mean attend? (see regard "
      "--help)");
  expect_refusal({"attend", "--haeds", "3"}, 2,
                 "there is no option --haeds; did you mean --heads?" + see);
  expect_refusal(
      {"attend", "--heads", "0"}, 2,
      "--heads: must be a whole number from 1 to 1048576; got '0'" + see);
  expect_refusal(
      {"attend", "--heads", "two"}, 2,
      "--heads: must be a whole number from 1 to 1048576; got 'two'" + see);
  expect_refusal(
      {"attend", "--threads", "1025"}, 2,
      "--threads: must be a whole number from 1 to 1024; got '1025'" + see);
  expect_refusal({"attend", "-x", "x.txt"}, 2,
                 "--input: tensor file: the name must end in .npy, "
                 ".safetensors or .safetensors:TENSOR; got 'x.txt'" +
                     see);
  expect_refusal({"attend", "-k", "k.npy"}, 2,
                 "give --input, or --query and --key (and --value)" + see);
  expect_refusal({"attend", "-x", "x.npy", "-q", "q.npy"}, 2,
                 "--input goes without --query, --key, --value" + see);
  expect_refusal({"attend", "--dtype", "float32"}, 2,
                 "--dtype is for tensors from files" + see);
  expect_refusal({"attend", "--dtype", "int8"}, 2,
                 "--dtype: the type must be float32, bfloat16, float16 or "
                 "float64; got 'int8'" +
                     see);
  expect_refusal({"attend", "--mask", "casual"}, 2,
                 "--mask: 'casual' is none of causal, window, prefix, "
                 "lengths, documents, keep, drop" +
                     see);
  expect_refusal({"attend", "-o", "./a.npy", "-w", "a.npy"}, 2,
                 "--out and --weights must be two files" + see);
  expect_refusal({"layer"}, 2, "LAYER is required (see regard layer --help)");
  expect_refusal({"layer", "a.npy", "--heads", "2"}, 2,
                 "LAYER: a layer comes from a .safetensors file (see regard "
                 "layer --help)");
  expect_refusal(
      {"layer", "a.safetensors"}, 2,
      "--heads is needed: the file of a layer does not contain it (see "
      "regard layer --help)");
  expect_refusal({"explain"}, 2,
                 "--len is required (see regard explain --help)");
}

TEST(Usage, GuessesWhatAMisspeltNameWasMeantToBe) {
  const auto said = [](const std::vector<std::string>& arguments) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_THAT(ended.out, IsEmpty());
    return ended.err;
  };
  EXPECT_EQ(said({"transalte", "--help"}),
            "regard: there is no command 'transalte'; did you mean translate? "
            "(see regard --help)\n");
  EXPECT_EQ(said({"gen"}),
            "regard: there is no command 'gen'; did you mean generate? (see "
            "regard --help)\n");
  EXPECT_EQ(said({"train", "trnslate"}),
            "regard: there is no command 'trnslate'; did you mean translate? "
            "(see regard train --help)\n");
  EXPECT_EQ(said({"bench", "--help"}),
            "regard: there is no command 'bench': ./run bench in the source "
            "folder has the benchmarks (see regard --help)\n");
  EXPECT_EQ(said({"xylophone"}),
            "regard: there is no command 'xylophone' (see regard --help)\n");
  const std::string see = " (see regard translate --help)\n";
  EXPECT_EQ(said({"translate", "--lenght-penalty=1", "tea"}),
            "regard: there is no option --lenght-penalty; did you mean "
            "--length-penalty?" +
                see);
  EXPECT_EQ(said({"translate", "--jsno", "tea"}),
            "regard: there is no option --jsno; did you mean --json?" + see);
  EXPECT_EQ(
      said({"translate", "--max", "5", "tea"}),
      "regard: there is no option --max; did you mean --max-length?" + see);
  EXPECT_EQ(said({"translate", "--zzz", "tea"}),
            "regard: there is no option --zzz" + see);
  EXPECT_EQ(said({"info", "now"}),
            "regard: 'now' was not expected (see regard info --help)\n");
  EXPECT_EQ(said({"train"}),
            "regard: train wants one of: translate, classify, recommend, "
            "answer, summarize, caption, video (see regard train --help)\n");
}

TEST(Usage, AWordInTheWrongPlaceIsNamed) {
  const auto said = [](const std::vector<std::string>& arguments) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_THAT(ended.out, IsEmpty());
    return ended.err;
  };
  EXPECT_EQ(said({"--threads", "1", "translate", "hi"}),
            "regard: options of a command come after its name: translate "
            "--threads (see regard translate --help)\n");
  EXPECT_THAT(said({"--json", "info"}), HasSubstr("name: info --json (see"));
  EXPECT_THAT(said({"--model", "x", "classify", "hi"}),
              HasSubstr("name: classify --model (see"));
  EXPECT_THAT(said({"train", "--resume", "translate", "--out", "o"}),
              HasSubstr("name: translate --resume (see regard train "
                        "translate --help)"));
  // Rather than that --model is required.
  EXPECT_THAT(said({"--model", "m", "search", "--corpus", "c", "tea"}),
              HasSubstr("name: search --model (see"));
  EXPECT_THAT(said({"-v", "info"}), HasSubstr("there is no option -v"));
  const std::string see = " was not expected (see regard info --help)\n";
  EXPECT_EQ(said({"info", "--", "translate"}), "regard: 'translate'" + see);
  EXPECT_EQ(said({"info", "++"}), "regard: '++'" + see);
  EXPECT_EQ(said({"info", "[a,b]"}), "regard: '[a,b]'" + see);
}

TEST(Usage, NamesTheProgramAsItWasTyped) {
  const TemporaryFolder folder;
  const std::string command = "bash -c \"exec -a ./run '" REGARD_PROGRAM
                              "' info now\" 2> " +
                              (folder / "err").string();
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
  EXPECT_EQ(testing::read_text(folder / "err"),
            "regard: 'now' was not expected (see ./run info --help)\n");
}

// An option that would change nothing is a mistake.
TEST(Usage, AnOptionThatDoesNothingIsRefused) {
  const std::string folder = REGARD_SOURCE_DIR "/models/reviews";
  struct Line {
    const char* option;
    std::vector<std::string> arguments;
  };
  for (const auto& [option, arguments] : std::vector<Line>{
           {"--port", {"view", "--export", "w.html", "--port", "5", "hi"}},
           {"--host", {"view", "--export", "w.html", "--host", "::1", "hi"}},
           {"--no-open", {"view", "--export", "w.html", "--no-open", "hi"}},
           {"--no-open", {"caption", "p.png", "--export", "w", "--no-open"}},
           {"--port", {"video", "c.npy", "--export", "w", "--port", "5"}},
           {"--to", {"view", "--weights", "w", "--tokens", "t", "--to", "zh"}},
           {"--beam",
            {"view", "--weights", "w", "--tokens", "t", "--beam", "2"}},
           {"--max-tokens",
            {"view", "--weights", "w", "--tokens", "t", "--max-tokens", "4"}},
           {"--tokenizer",
            {"view", "--weights", "w", "--tokens", "t", "--tokenizer", "t"}},
           {"--seed", {"recommend", "--history", "x", "--seed", "5"}},
           {"--on", {"recommend", "--history", "x", "--on", "test"}},
           {"--label-column", {"classify", "--label-column", "l", "a"}},
           {"--text-column", {"classify", "--text-column", "t", "a"}},
           {"--text-column",
            {"classify", "--text-column", "t", "--input", "a.txt"}},
           {"--text-column", {"summarize", "f", "--text-column", "t"}},
           {"--summary-column", {"summarize", "f", "--summary-column", "s"}},
           {"--summary-column",
            {"summarize", "--input", "f", "--summary-column", "s"}},
           {"--text", {"attend", "-x", "x.npy", "-o", "y.npy", "--text", "a"}},
           {"--color",
            {"attend", "-x", "x.npy", "-o", "y.npy", "--color", "always"}},
           {"--text",
            {"layer", "l.safetensors", "--heads", "2", "-x", "x.npy", "-o",
             "y.npy", "--text", "a"}},
           {"--part", {"quantize", "m.gguf", "--out", "o", "--part", "5"}},
           {"--part",
            {"quantize", folder, "--out", "o", "--measure", "m", "--part",
             "5"}}}) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2) << arguments[0] << " " << option << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(option)) << arguments[0];
    EXPECT_THAT(ended.out, IsEmpty());
  }
}

TEST(Usage, AnOptionHasOneValue) {
  const std::string see = " (see regard attend --help)";
  expect_refusal({"attend", "--heads"}, 2, "--heads wants a value" + see);
  expect_refusal({"attend", "--heads", "2", "--heads", "4"}, 2,
                 "--heads is given more than once" + see);
}

TEST(Usage, ANumberOutOfItsRangeIsTheCommandLinesFault) {
  const auto said = [](const std::vector<std::string>& arguments) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_THAT(ended.out, IsEmpty());
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
    return ended.err;
  };
  EXPECT_THAT(said({"attend", "--dropout", "1.5"}),
              HasSubstr("--dropout: must be a number from 0 to below 1; got "
                        "'1.5'"));
  EXPECT_THAT(said({"attend", "--dropout", "1"}), HasSubstr("--dropout: "));
  EXPECT_THAT(said({"attend", "--softcap", "-1"}), HasSubstr("--softcap: "));
  EXPECT_THAT(said({"attend", "--scale", "nan"}),
              HasSubstr("--scale: must be a finite number; got 'nan'"));
  EXPECT_THAT(said({"attend", "--head", "9"}),
              HasSubstr("--head: there are heads 0 .. 7; got 9"));
  EXPECT_THAT(said({"attend", "--heads", "3", "--kv-heads", "2"}),
              HasSubstr("--kv-heads must divide --heads; they are 2 and 3"));
  EXPECT_THAT(said({"attend", "--heads", "0x10"}), HasSubstr("got '0x10'"));
  EXPECT_THAT(said({"explain", "--len", "5", "--head-dim", "8", "--heads", "3",
                    "--kv-heads", "2"}),
              HasSubstr("kv_heads must divide"));
  EXPECT_THAT(said({"explain", "--len", "1000000000000", "--head-dim", "64"}),
              HasSubstr("q_len * kv_len must be below 9e18"));
  EXPECT_THAT(said({"train", "translate", "--tsv", "t", "--out", "o", "--dim",
                    "10", "--heads", "3"}),
              HasSubstr("--heads must divide --dim; they are 3 and 10"));
  EXPECT_THAT(said({"train", "translate", "--tsv", "t", "--out", "o", "--beta1",
                    "1.5"}),
              HasSubstr("--beta1: must be a number from 0 to below 1"));
}

TEST(Explain, TakesNoLongerForManyKeys) {
  const Ended ended =
      run_regard({"explain", "--heads", "8", "--len", "1000000000",
                  "--head-dim", "64", "--mask", "causal,window=4095:0"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  // 8 heads: 4096 keys for each query, but for the first, which see
  // 1 + 2 + .. + 4095.
  EXPECT_THAT(ended.out, HasSubstr("32,767,932,907,520 of "
                                   "8,000,000,000,000,000,000"));
}

TEST(Usage, OneOfAFewNamesIsNotTakenByNumber) {
  const std::string see = " (see regard attend --help)";
  expect_refusal(
      {"attend", "--compute", "int8"}, 2,
      "--compute: must be one of float32, bfloat16; got 'int8'" + see);
  expect_refusal({"attend", "--score", "1"}, 2,
                 "--score: must be one of dot, cosine; got '1'" + see);
  expect_refusal({"attend", "--color", "sometimes"}, 2,
                 "--color: must be one of auto, always, never; got "
                 "'sometimes'" +
                     see);
}

TEST(Usage, ASeedIsNeverAnotherNumberThanWasWritten) {
  for (const char* seed : {"-1", "18446744073709551616", "1.5", "0x10", "1 "}) {
    expect_refusal({"attend", "--seed", seed}, 2,
                   "--seed: must be a whole number from 0 to "
                   "18446744073709551615; got '" +
                       std::string(seed) + "' (see regard attend --help)");
  }
  EXPECT_EQ(run_regard({"attend", "--seed", "18446744073709551615"}).code, 0);
}

TEST(Usage, AnEmptyValueIsNotTakenForOneThatWasNotGiven) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"translate", "--model", "", "tea"},
        {"translate", "--input", ""},
        {"view", "--host", "", "--no-open", "--port", "0"},
        {"view", "--export", "", "tea"},
        {"attend", "--text", ""},
        {"attend", "--head", ""}}) {
    expect_refusal(arguments, 2,
                   arguments[1] + ": the value is empty (see regard " +
                       arguments[0] + " --help)");
  }
}

TEST(Usage, TrainHelpsWithWhatItCan) {
  const Ended ended = run_regard({"train", "--help"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, HasSubstr("regard train translate --src"));
  EXPECT_THAT(ended.out, Not(HasSubstr("Without a command")));
}

class Inputs : public ::testing::Test {
 protected:
  std::string save(const std::string& name, const Tensor& tensor) {
    const std::string path = folder_ / name;
    save_npy(path, tensor);
    return path;
  }
  TemporaryFolder folder_;
};

TEST_F(Inputs, OfBoolAreNamedAndShownTheirPlace) {
  const std::string x = save("x.npy", Tensor({4, 6}));
  const std::string b = save("b.npy", Tensor(DType::kBool, {4, 4}));
  const std::string rule = "it must hold numbers; '" + b +
                           "' is bool, which is for --mask keep= and drop=";
  expect_refusal({"attend", "-x", x, "--bias", b}, 1, "--bias: " + rule);
  expect_refusal({"attend", "-x", b, "--dtype", "float32"}, 1,
                 "--input: " + rule);
  expect_refusal({"attend", "-q", x, "-k", b}, 1, "--key: " + rule);
}

TEST_F(Inputs, ThatDoNotFitAreRefusedWithCodeOne) {
  const std::string x = save("x.npy", Tensor({4, 6}));
  const std::string y = save("y.npy", Tensor({1, 4, 6}));
  const std::string z = save("z.npy", Tensor({1, 4, 2, 6}));
  const std::string d = save("d.npy", Tensor(DType::kFloat64, {4, 6}));
  const std::string n = save("n.npy", Tensor(DType::kInt64, {4, 6}));
  expect_refusal({"attend", "-q", x, "-k", y}, 1,
                 "attend: query, key and value must have the same number of "
                 "dimensions; [4, 6] and [1, 4, 6]");
  expect_refusal({"attend", "-x", z, "--heads", "2"}, 1,
                 "attend: --heads is 2, but the tensor has 4 heads: "
                 "[1, 4, 2, 6]");
  expect_refusal({"attend", "-q", x, "-k", d}, 1,
                 "attend: query, key and value must be of one floating type; "
                 "they hold float32 and float64; convert them by --dtype");
  expect_refusal({"attend", "-x", n}, 1,
                 "attend: query, key and value must be of one floating type; "
                 "they hold int64 and int64; convert them by --dtype");
  expect_refusal({"attend", "-x", save("v.npy", Tensor({3}))}, 1,
                 "attend: an input is [len, width], [batch, len, width] or "
                 "[batch, heads, len, head width]; it is [3]");
  expect_refusal({"attend", "-x", x, "--text", "a b"}, 1,
                 "--text: there must be as many words as queries or keys; "
                 "words are 2, queries 4, keys 4");
  expect_refusal({"attend", "--text", " "}, 1,
                 "--text: there must be at least one word");
  expect_refusal(
      {"attend", "-x", x, "--bias", save("b.npy", Tensor({1, 1, 1, 1, 1}))}, 1,
      "--bias: at most four dimensions; it is [1, 1, 1, 1, 1]");
}

TEST_F(Inputs, ThatTheLibraryRefusesComeInItsWords) {
  const std::string x = save("x.npy", Tensor({4, 6}));
  const std::string k = save("k.npy", Tensor({4, 8}));
  const auto said = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "attend");
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.out, IsEmpty());
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
    // Whoever calls no functions is told no names of functions.
    EXPECT_THAT(ended.err, Not(HasSubstr("attention_forward")));
    return ended.err;
  };
  EXPECT_THAT(said({"-q", x, "-k", k}), HasSubstr("[1, 1, 4, 8]"));
  EXPECT_THAT(said({"-x", x, "--mask", "lengths=1:2"}),
              StartsWith("regard: mask lengths need one key length"));
}

TEST_F(Inputs, ThatAreHostileAreRefusedInOneLine) {
  const auto said = [](const std::string& file) {
    const Ended ended = run_regard({"attend", "-x", file});
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.out, IsEmpty());
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
    EXPECT_THAT(ended.err, Not(HasSubstr("\x1b")));
    return ended.err;
  };
  EXPECT_THAT(said(folder_ / "absent.npy"), HasSubstr("absent.npy"));
  EXPECT_THAT(said(folder_.path().string() + "/absent\n\x1b[31m.npy"),
              HasSubstr("\\x1b[31m.npy"));
  write_text(folder_ / "empty.npy", "");
  EXPECT_THAT(said(folder_ / "empty.npy"), HasSubstr("begins with the bytes"));
  write_text(folder_ / "bad.npy", "\x1b]0;title\x07 not an array");
  EXPECT_THAT(said(folder_ / "bad.npy"), HasSubstr("\\x1b"));
  std::string cut = testing::read_text(save("cut.npy", Tensor({100, 100})));
  write_text(folder_ / "cut.npy", cut.substr(0, cut.size() - 1));
  EXPECT_THAT(said(folder_ / "cut.npy"), HasSubstr("cut off"));
  write_text(folder_ / "bad.safetensors",
             std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  EXPECT_THAT(said(folder_ / "bad.safetensors"), HasSubstr("header"));
}

TEST_F(Inputs, OfSafetensorsAreChosenByName) {
  StateDict state;
  state.emplace("a", Tensor({1, 2}));
  state.emplace("b", Tensor({1, 2}));
  const std::string file = folder_ / "two.safetensors";
  save_safetensors(file, state);
  expect_refusal({"attend", "-x", file}, 1,
                 "tensor file: '" + file +
                     "' holds 2 tensors; choose one by "
                     "FILE.safetensors:NAME, of a, b");
  const Ended ended = run_regard({"attend", "-x", file + ":c"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("c"));
  EXPECT_EQ(run_regard({"attend", "-x", file + ":b"}).code, 0);
}

TEST_F(Inputs, AreNotReadWhereTheOutputHasNoPlace) {
  const std::string x = save("x.npy", Tensor({2, 2}));
  const std::string nowhere = folder_ / "nowhere";
  expect_refusal({"attend", "-x", x, "-o", nowhere + "/y.npy"}, 1,
                 "output: '" + nowhere + "' is not a folder");
  std::filesystem::create_directory(folder_ / "y.npy");
  expect_refusal({"attend", "-x", x, "-o", folder_ / "y.npy"}, 1,
                 "output: '" + (folder_ / "y.npy").string() + "' is a folder");
}

TEST(Output, ThatCannotBeWrittenIsAnError) {
  // A short text fails when it is flushed, a long one when it is written.
  for (const char* arguments : {" --version", " --help", ""}) {
    const std::string command =
        std::string(REGARD_PROGRAM) + arguments + " > /dev/full 2>/dev/null";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << arguments;
  }
}

}  // namespace
}  // namespace regard::test
