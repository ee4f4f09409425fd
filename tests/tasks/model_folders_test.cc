// SPDX-License-Identifier: Apache-2.0
// The folders that the fuzzer starts with (tests/fuzz/make_corpus.py), one of
// every family: right they load, and wrong in one file they are refused with
// its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/folder.h"
#include "io/files.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/model_kind.h"
#include "regard/tasks/text_encoder.h"
#include "regard/tasks/translator.h"
#include "support/model_files.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using regard::testing::read_text;
using regard::testing::write_text;
using ::testing::AllOf;
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

// What is computed for a model is no larger than its weights allow.
TEST(TranslatorFolder, MakesNoSinusoidsForWeightsThatAreNotAsWide) {
  const fuzz::Folder folder;
  ASSERT_TRUE(folder.fill(read_text(kCorpus / "marian")));
  const fs::path path = folder.path() / "model.safetensors";
  StateDict weights = SafetensorsFile::open(path).state_dict();
  constexpr std::int64_t kWide = 1 << 20;
  weights["model.shared.weight"] = Tensor({1, kWide});
  save_safetensors(path, weights);
  std::string config = read_text(folder.path() / "config.json");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{
                                     "\"d_model\": 4", "\"d_model\": 1048576"},
                                 {"\"max_position_embeddings\": 20",
                                  "\"max_position_embeddings\": 65536"}}) {
    const std::size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos);
    config.replace(at, from.size(), to);
  }
  write_text(folder.path() / "config.json", config);
  EXPECT_THAT(
      [&] { Translator::load(folder.path()); },
      ThrowsMessage<ParseError>(HasSubstr(
          "encoder.layers.0.self_attn.in_proj_weight must be [3145728, "
          "1048576] for embeddings of 1048576 columns; it is [12, 4]")));
}

// A file of some hundred bytes may name one variable any number of times.
TEST(TranslatorFolder, CopiesAliasesSomeTimesOnly) {
  const auto name = [](const std::string& text) {
    return test::bytes_of_number(static_cast<std::uint16_t>(text.size() + 1)) +
           text + '\0';
  };
  const std::uint32_t wide = 16;
  std::string bytes = test::bytes_of_number(std::uint32_t{6}) +
                      name("TransformerSpec") +
                      test::bytes_of_number(std::uint32_t{7}) +
                      test::bytes_of_number(std::uint32_t{1}) + name("w");
  bytes += '\2' + test::bytes_of_number(wide) + test::bytes_of_number(wide) +
           '\0' + test::bytes_of_number(4 * wide * wide) +
           std::string(4 * wide * wide, '\0');
  std::vector<std::string> names = {"encoder/embeddings/weight",
                                    "decoder/embeddings/weight",
                                    "decoder/projection/weight"};
  for (const std::string side : {"encoder", "decoder"}) {
    for (int layer = 0; layer < 9; ++layer) {
      const std::string at = side + "/layer_" + std::to_string(layer) + "/";
      for (const char* part :
           {"self_attention/linear_0/weight", "self_attention/linear_1/weight",
            "self_attention/layer_norm/gamma", "attention/linear_0/weight",
            "attention/linear_1/weight", "attention/linear_2/weight",
            "attention/layer_norm/gamma", "ffn/linear_0/weight",
            "ffn/linear_1/weight", "ffn/layer_norm/gamma"}) {
        names.push_back(at + part);
      }
    }
  }
  bytes += test::bytes_of_number(static_cast<std::uint32_t>(names.size()));
  for (const std::string& alias : names) bytes += name(alias) + name("w");
  const fuzz::Folder folder;
  ASSERT_TRUE(folder.fill(read_text(kCorpus / "ctranslate2")));
  write_text(folder.path() / "model.bin", bytes);
  EXPECT_THAT([&] { Translator::load(folder.path()); },
              ThrowsMessage<ParseError>(
                  AllOf(HasSubstr("model.bin': the variable 'encoder/layer_"),
                        HasSubstr("is one alias too many"))));
}

}  // namespace
}  // namespace regard::tasks
