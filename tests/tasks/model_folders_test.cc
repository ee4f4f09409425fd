// SPDX-License-Identifier: Apache-2.0
// The folders that the fuzzer starts with (tests/fuzz/make_corpus.py), one of
// every family: right they load, and wrong in one file they are refused with
// its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/folder.h"
#include "io/files.h"
#include "regard/core/error.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/model_kind.h"
#include "regard/tasks/text_encoder.h"
#include "regard/tasks/translator.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using regard::testing::read_text;
using regard::testing::write_text;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const fs::path kCorpus =
    fs::path(REGARD_SOURCE_DIR) / "tests/fuzz/corpus/model_folder";

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCorpus)) {
    const std::string name = entry.path().filename().string();
    // What a fuzzer found is called crash or so.
    if (name.find('-') == std::string::npos) names.push_back(name);
  }
  return names;
}

class ModelFolders : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { fill(); }
  void fill() { ASSERT_TRUE(folder_.fill(read_text(kCorpus / GetParam()))); }

  void load() const {
    switch (find_model_kind(folder_.path())) {
      case ModelKind::kTextEncoder:
        TextEncoder::load(folder_.path());
        break;
      case ModelKind::kLanguageModel:
        load_language_model(folder_.path());
        break;
      case ModelKind::kTranslator:
        Translator::load(folder_.path());
        break;
    }
  }
  // "" where it loads. Anything else is thrown on.
  std::string refusal() const {
    try {
      load();
      return "";
    } catch (const ParseError& error) {
      return error.what();
    } catch (const IoError& error) {
      return error.what();
    }
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }

  fuzz::Folder folder_;
};

TEST_P(ModelFolders, Load) { EXPECT_EQ(refusal(), ""); }

// The readers of a value go as deep as the value does.
TEST_P(ModelFolders, AreRefusedWithJsonThatIsNestedTooDeep) {
  for (const fs::path& file : files()) {
    if (file.extension() != ".json") continue;
    fill();
    write_text(file, R"({"model_type":)" + std::string(100000, '[') +
                         std::string(100000, ']') + "}");
    EXPECT_THAT(refusal(), HasSubstr("'" + file.string() + "'")) << file;
  }
}

TEST_P(ModelFolders, AreRefusedWithFilesThatAreNoFiles) {
  for (const fs::path& file : files()) {
    const std::string name = "'" + file.string() + "'";
    fill();
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_THAT(refusal(), HasSubstr(name + ": it is not a regular file"));
    fs::remove(file);
    fs::create_directory(file);
    EXPECT_THAT(refusal(), HasSubstr(name + ": it is a folder"));
  }
}

TEST_P(ModelFolders, AreRefusedOrLoadWithFilesThatAreCutOff) {
  for (const fs::path& file : files()) {
    fill();
    const std::string whole = read_text(file);
    for (std::size_t part = 0; part < 16; ++part) {
      write_text(file, whole.substr(0, whole.size() * part / 16));
      const std::string text = refusal();
      if (file.extension() == ".txt") continue;  // a shorter vocabulary
      EXPECT_THAT(text, HasSubstr("'" + file.string() + "'")) << part;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Corpus, ModelFolders, ::testing::ValuesIn(families()),
                         [](const auto& family) { return family.param; });

TEST(TranslatorFolder, NeverIgnoresBadWords) {
  const fuzz::Folder folder;
  ASSERT_TRUE(folder.fill(read_text(kCorpus / "marian")));
  const std::string config = read_text(folder.path() / "config.json");
  const std::string good = R"("bad_words_ids": [[1]])";
  const std::size_t at = config.find(good);
  ASSERT_NE(at, std::string::npos);
  for (const char* bad : {"1", "\"x\"", "[1]", "[[1, 2]]", "[[-1]]", "[[14]]",
                          "[[1e300]]", "[[18446744073709551615]]", "{}"}) {
    std::string text = config;
    text.replace(at, good.size(), std::string(R"("bad_words_ids": )") + bad);
    write_text(folder.path() / "config.json", text);
    EXPECT_THAT([&] { Translator::load(folder.path()); },
                ThrowsMessage<ParseError>(
                    HasSubstr("config.json': bad_words_ids must be a list")))
        << bad;
  }
}

}  // namespace
}  // namespace regard::tasks
