// SPDX-License-Identifier: Apache-2.0
// The translator that comes with the program, as users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/run_program.h"

namespace regard::test {
namespace {

namespace fs = std::filesystem;
using ::regard::testing::read_text;
using ::regard::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Environment kUtf8 = {{"LANG", "C.UTF-8"}};
const std::string kModel = REGARD_SOURCE_DIR "/models/en-zh";

std::vector<std::string> translations_in(const std::string& screen) {
  std::vector<std::string> found;
  std::istringstream lines(screen);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  -> ")) found.push_back(line.substr(5));
  }
  return found;
}

// The scripts tell the directions apart.
bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<signed char>(c) > 0; });
}

TEST(BundledTranslator, IsWhatRegardAloneShowsBothWays) {
  const Ended ended = run_regard({}, kUtf8);
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, IsEmpty());
  const std::vector<std::string> found = translations_in(ended.out);
  ASSERT_EQ(found.size(), 4u) << ended.out;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(found[i].empty());
    EXPECT_EQ(is_ascii(found[i]), i >= 2) << found[i];
  }
  // A picture of where each piece looked follows each.
  EXPECT_THAT(ended.out, HasSubstr("\u2591"));
  EXPECT_THAT(ended.out, HasSubstr("regard translate \"...\""));
}

// The words of "What it is:   regard answer --context f "Where is Ada?"" after
// `regard`, as a shell cuts them; none where the line names no command.
std::vector<std::string> words_of_command(const std::string& line) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string::npos) return {};
  std::istringstream rest(line.substr(colon + 1));
  std::vector<std::string> words;
  for (std::string word; rest >> std::quoted(word);) words.push_back(word);
  if (words.empty() || words.front() != "regard") return {};
  return {words.begin() + 1, words.end()};
}

// Every task has a line with a command that works at once, in the folder of
// the project.
TEST(RegardAlone, NamesCommandsThatWorkAtOnce) {
  std::istringstream lines(run_regard({}, kUtf8).out);
  std::set<std::string> named;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> command = words_of_command(line);
    if (command.empty()) continue;
    named.insert(command.front());
    if (command.front() == "view") continue;  // stays open
    for (std::string& word : command) {
      if (word.starts_with("examples/")) {
        word.insert(0, REGARD_SOURCE_DIR "/");
      }
    }
    const Ended ended = run_regard(command, kUtf8);
    EXPECT_EQ(ended.code, 0) << line << "\n" << ended.err;
    EXPECT_THAT(ended.out, Not(IsEmpty())) << line;
  }
  for (const char* task : {"translate", "classify", "answer", "summarize",
                           "recommend", "caption", "video", "attend"}) {
    EXPECT_TRUE(named.contains(task)) << task;
  }
}

TEST(BundledTranslator, IsUsedWhereNoModelIsNamed) {
  const Ended bundled = run_regard({"translate", "Where is the station?"});
  const Ended named =
      run_regard({"translate", "--model", kModel, "Where is the station?"});
  EXPECT_EQ(bundled.code, 0) << bundled.err;
  EXPECT_FALSE(bundled.out.empty());
  EXPECT_EQ(bundled.out, named.out);
}

TEST(BundledTranslator, IsViewedWhereNoModelIsNamed) {
  const TemporaryFolder folder;
  const Ended ended = run_regard(
      {"view", "Where is the station?", "--export", folder / "station.html"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(read_text(folder / "station.html"), HasSubstr("en-zh"));
}

TEST(BundledTranslator, IsMissedByAProgramThatWasMovedWithoutIt) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "bin");
  fs::copy_file(REGARD_PROGRAM, folder / "bin/regard");
  const std::string command =
      (folder / "bin/regard").string() + " translate hello > " +
      (folder / "out").string() + " 2> " + (folder / "err").string();
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_THAT(read_text(folder / "out"), IsEmpty());
  EXPECT_THAT(
      read_text(folder / "err"),
      AllOf(HasSubstr("the bundled model is not in '"),
            HasSubstr(
                "share/regard/models/en-zh'; --model FOLDER names another")));
}

TEST(BundledTranslator, TellsAPersonThatItWaitsForSentences) {
  const Ended typed =
      run_on_terminal({"translate"}, 80, kUtf8, "Thank you.\n\x04");
  EXPECT_EQ(typed.code, 0);
  EXPECT_THAT(typed.out, HasSubstr("One sentence per line; Ctrl-D ends."));
  // Nobody reads that from a pipe.
  EXPECT_THAT(run_regard({"translate"}, kUtf8).err, IsEmpty());
}

TEST(BundledTranslator, ClosedInputIsNotTakenForNoSentences) {
  const TemporaryFolder folder;
  for (const char* input : {"<&-", "</"}) {
    const std::string command = std::string(REGARD_PROGRAM) + " translate " +
                                input + " 2> " + (folder / "err").string();
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
    EXPECT_EQ(read_text(folder / "err"),
              "regard: standard input: it cannot be read\n");
  }
}

TEST(BundledTranslator, LeavesOutAByteOrderMark) {
  const TemporaryFolder folder;
  const std::string input = folder / "in";
  testing::write_text(input, "\xEF\xBB\xBFThank you.\n");
  const Ended marked = run_regard({"translate"}, {}, input);
  EXPECT_EQ(marked.code, 0) << marked.err;
  EXPECT_EQ(marked.out, run_regard({"translate", "Thank you."}).out);
}

TEST(BundledTranslator, AWrongLineDoesNotTakeTheOthersWithIt) {
  const TemporaryFolder folder;
  const std::string input = folder / "in";
  testing::write_text(input, "Thank you.\nBad \xff.\n");
  const Ended ended = run_regard({"translate"}, {}, input);
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.out, run_regard({"translate", "Thank you."}).out);
  EXPECT_THAT(ended.err, HasSubstr("must be UTF-8; line 2 is not"));
}

TEST(BundledTranslator, RefusesASentenceThatIsNoText) {
  const Ended ended = run_regard({"translate", "--to", "zh", "Bad \xff here."});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, IsEmpty());
  EXPECT_THAT(ended.err, HasSubstr("a text must be UTF-8"));
}

TEST(BundledTranslator, ASentenceOfTwoLinesIsOneRecord) {
  const Ended ended =
      run_regard({"translate", "--nbest", "2", "Thank you.\nGood morning."});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 2)
      << ended.out;
}

TEST(BundledTranslator, SymbolsAloneAreTheirOwnTranslation) {
  const std::string smile = "\U0001F600";
  EXPECT_EQ(run_regard({"translate", smile}).out, smile + "\n");
  const Ended shown = run_regard({"translate", "--show", smile});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, smile + "\n");
}

TEST(BundledTranslator, CopiesNoControlCharactersToATerminal) {
  const Ended ended = run_on_terminal(
      {"translate", "--whole", "Thank you. \x1b]0;owned\x07 \u009b31m"}, 80,
      kUtf8);
  EXPECT_EQ(ended.code, 0) << ended.out;
  for (const char* control : {"\x1b", "\x07", "\u009b"}) {
    EXPECT_THAT(ended.out, Not(HasSubstr(control)));
  }
}

TEST(BundledTranslator, FitsInTwentyMegabytes) {
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(kModel)) {
    bytes += file.file_size();
  }
  EXPECT_LE(bytes, 20u * 1000 * 1000);
}

}  // namespace
}  // namespace regard::test
