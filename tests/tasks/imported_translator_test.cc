// SPDX-License-Identifier: Apache-2.0
// A real model of CTranslate2, in three types, by what it is known to say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/tasks/translator.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using regard::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

fs::path aren(const std::string& kind) {
  return fs::path(REGARD_SOURCE_DIR) /
         ("../shared/models/ctranslate2-aren/aren-transliteration" + kind);
}

class Ctranslate2Model : public ::testing::TestWithParam<const char*> {};

// From Arabic letters to Latin ones.
TEST_P(Ctranslate2Model, SaysWhatIsKnown) {
  const fs::path folder = aren(GetParam());
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const Translator translator = Translator::load(folder);
  EXPECT_EQ(translator.config().model.heads, 8);
  EXPECT_EQ(translator.config().model.source_vocab, 51);
  EXPECT_EQ(translator.config().model.target_vocab, 43);
  for (const std::int64_t beam : {1, 2, 5}) {
    TranslateOptions options;
    options.beam = beam;
    const std::vector<std::string> letters = {
        "\xD8\xA2 \xD8\xAA \xD8\xB2 \xD9\x85 \xD9\x88 \xD9\x86"};
    EXPECT_EQ(translator.translate(letters, options)[0][0].text, "a t z m o n");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Ctranslate2Model,
                         ::testing::Values("", "-i16", "-i8"),
                         [](const auto& kind) {
                           const std::string name = kind.param;
                           return name.empty() ? "float32"
                                               : "int" + name.substr(2);
                         });

TEST(Ctranslate2Models, NameWhatIsMissing) {
  const fs::path folder = aren("");
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const TemporaryFolder temporary;
  const fs::path copy = temporary.path();
  const auto load = [&] { Translator::load(copy); };
  fs::copy_file(folder / "model.bin", copy / "model.bin");
  EXPECT_THAT(load, ThrowsMessage<IoError>(HasSubstr("no source_vocabulary")));
  std::ofstream(copy / "source_vocabulary.txt") << "<s>\n</s>\na\n";
  std::ofstream(copy / "target_vocabulary.txt") << "<s>\nb\n";
  EXPECT_THAT(load, ThrowsMessage<ParseError>(
                        HasSubstr("target vocabulary of '" + copy.string())));
  std::ofstream(copy / "target_vocabulary.txt") << "<s>\n</s>\nb\n";
  std::string many;
  for (int i = 0; i < 99; ++i) many += "w" + std::to_string(i) + "\n";
  std::ofstream(copy / "source_vocabulary.txt") << "<s>\n</s>\n" << many;
  EXPECT_THAT(load, ThrowsMessage<ParseError>(HasSubstr(
                        "the model has 51 pieces, the tokenizer 102")));
}

}  // namespace
}  // namespace regard::tasks
