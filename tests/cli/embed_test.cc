// SPDX-License-Identifier: Apache-2.0
// regard embed and regard search, as a shell sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/content_hash.h"
#include "cli/progress.h"
#include "cli/run_program.h"
#include "regard/io/npy.h"
#include "support/encoder_folder.h"

namespace regard::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Arguments = std::vector<std::string>;

class Embed : public ::testing::Test {
 protected:
  void SetUp() override { testing::write_encoder_folder(model()); }
  std::filesystem::path model() const { return folder_ / "model"; }
  Arguments with(const std::string& command, const Arguments& more) const {
    Arguments all = {command, "--model", model().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string file(const std::string& name, const std::string& text) const {
    testing::write_text(folder_ / name, text);
    return (folder_ / name).string();
  }

  testing::TemporaryFolder folder_;
};

std::vector<float> numbers_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<float> numbers;
  for (float number; in >> number;) numbers.push_back(number);
  return numbers;
}

TEST_F(Embed, GivesTheSameNumbersAsTextJsonAndArray) {
  const std::string lines = file("in.txt", "the cat\ndogs \"sat\"\n");
  const std::string out = (folder_ / "v.npy").string();
  const Ended plain = run_regard(with("embed", {"the cat", "dogs \"sat\""}));
  const Ended json = run_regard(with("embed", {"--input", lines, "--json"}));
  const Ended array =
      run_regard(with("embed", {"--input", lines, "--out", out}));
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(array.out, "2 x 8 -> " + out + "\n") << array.err;
  EXPECT_THAT(plain.err + json.err + array.err, IsEmpty());
  const Tensor saved = load_npy(out);
  ASSERT_EQ(saved.shape(), (Shape{2, 8}));
  const auto values = saved.values<float>();
  const std::vector<float> expected(values.begin(), values.end());
  EXPECT_EQ(numbers_in(plain.out), expected);
  std::istringstream objects(json.out);
  std::vector<float> from_json;
  std::vector<std::string> texts;
  for (std::string line; std::getline(objects, line);) {
    const auto object = nlohmann::json::parse(line);
    texts.push_back(object.at("text"));
    for (const double value : object.at("embedding")) {
      from_json.push_back(static_cast<float>(value));
    }
  }
  EXPECT_EQ(from_json, expected);
  EXPECT_EQ(texts, (std::vector<std::string>{"the cat", "dogs \"sat\""}));
}

TEST_F(Embed, RefusesInOneLineAndLeavesNothing) {
  const auto refused = [&](const Arguments& more, const std::string& words,
                           int code) {
    const Ended ended = run_regard(with("embed", more));
    EXPECT_EQ(ended.code, code);
    EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
    EXPECT_THAT(ended.out, IsEmpty());
  };
  refused({"a", "--input", "b"}, "give texts or --input, not both", 2);
  refused({"a", "--out", "x.npy", "--json"}, "give --out or --json", 2);
  refused({"a", "--out", "x.txt"}, "x.txt", 2);
  refused({"a", "--out", "/nowhere/x.npy"}, "'/nowhere' is not a folder", 1);
  refused({"--input", "/nowhere/x"}, "/nowhere/x", 1);
  refused({"\xff"}, "embed: a text must be UTF-8; '\xff' is not", 1);
  refused({"a", "--prompt", "query"}, "the model's prompts are none", 1);
  std::filesystem::resize_file(model() / "model.safetensors", 100);
  refused({"a", "--out", (folder_ / "v.npy").string()}, "model.safetensors", 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "v.npy"));
}

TEST_F(Embed, AnInputThatCannotBeReadIsNotEmpty) {
  const std::string out = (folder_ / "v.npy").string();
  const Ended ended = run_regard(with("embed", {"--out", out}), {}, "/");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("cannot read 'standard input'"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

class Search : public Embed {
 protected:
  Arguments ask(const std::string& corpus, const Arguments& more) const {
    Arguments all = with("search", {"--corpus", corpus});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Search, FindsTheLineItselfFirstAndNumbersLinesAsTheFileHasThem) {
  const std::string corpus =
      file("corpus.txt", "the dog sat\n\n  \na cat\nthe mat.\n");
  const Ended ended = run_regard(ask(corpus, {"--top", "2", "a cat"}));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, ::testing::StartsWith("1.000  4  a cat\n"));
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 2);
  const Ended json =
      run_regard(ask(corpus, {"--json", "a cat", "the dog sat"}));
  std::istringstream lines(json.out);
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(lines, line);) {
    found.push_back(nlohmann::json::parse(line));
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["hits"].size(), 3u);  // blank lines are not found
  EXPECT_EQ(found[1]["hits"][0]["line"], 1);
  EXPECT_EQ(found[1]["hits"][0]["text"], "the dog sat");
  EXPECT_NEAR(found[1]["hits"][0]["similarity"].get<double>(), 1, 1e-6);
}

TEST_F(Search, ReadsQueriesFromStandardInput) {
  const std::string corpus = file("corpus.txt", "the dog sat\na cat\n");
  const auto found = [&](const std::string& input) {
    return run_regard(ask(corpus, {"--top", "1"}), {}, input);
  };
  const Ended marked = found(file("in",
                                  "\xEF\xBB\xBF"
                                  "a cat\r\n\n"));
  EXPECT_EQ(marked.code, 0) << marked.err;
  EXPECT_EQ(marked.out, "1.000  2  a cat\n");
  const Ended folder = found("/");
  EXPECT_EQ(folder.code, 1);
  EXPECT_EQ(folder.err, "regard: standard input: it cannot be read\n");
  EXPECT_EQ(found(file("bad", "a cat\n\xff\n")).err,
            "regard: search: standard input must be UTF-8; line 2 is not\n");
}

TEST_F(Search, RefusesAQueryThatIsNoText) {
  const std::string corpus = file("corpus.txt", "a cat\n");
  for (const char* query : {"", " ", "\xff"}) {
    const Ended ended = run_regard(ask(corpus, {query}));
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.err, HasSubstr("search: a text must"));
    EXPECT_THAT(ended.out, IsEmpty());
  }
}

TEST_F(Search, KeepsItsIndexUntilTheCorpusOrTheModelChanges) {
  const std::string corpus = file("corpus.txt", "the dog sat\na cat\n");
  const std::filesystem::path index = corpus + ".index.safetensors";
  const auto answer = [&] {
    const Ended ended = run_regard(ask(corpus, {"--top", "1", "a cat"}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const auto time = [&] { return std::filesystem::last_write_time(index); };
  EXPECT_EQ(answer(), "1.000  2  a cat\n");
  // An index that is used is not written: its time stays.
  const auto old = time() - std::chrono::hours(1);
  std::filesystem::last_write_time(index, old);
  EXPECT_EQ(answer(), "1.000  2  a cat\n");
  EXPECT_EQ(time(), old);
  // Weights of another type make other vectors.
  run_regard(ask(corpus, {"--weights", "int8", "a cat"}));
  EXPECT_NE(time(), old);
  testing::write_text(corpus, "a cat\nthe dog sat\n");
  EXPECT_EQ(answer(), "1.000  1  a cat\n");
  EXPECT_NE(time(), old);
  std::filesystem::last_write_time(index, old);
  StateDict state = testing::bert_weights();
  state.at("encoder.layer.0.output.dense.bias").values<float>()[3] += 1;
  save_safetensors(model() / "model.safetensors", state);
  EXPECT_EQ(answer(), "1.000  1  a cat\n");
  EXPECT_NE(time(), old);
}

TEST_F(Search, NeverOverwritesAFileThatIsNoIndex) {
  const std::string corpus = file("corpus.txt", "a cat\n");
  const std::string other = (folder_ / "mine.safetensors").string();
  save_safetensors(other, testing::bert_weights());
  const std::string before = testing::read_text(other);
  const Ended ended = run_regard(ask(corpus, {"--index", other, "a cat"}));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("is no index of regard search"));
  EXPECT_EQ(testing::read_text(other), before);
  const Ended named = run_regard(ask(corpus, {"--index", "x.npy", "a cat"}));
  EXPECT_EQ(named.code, 2);
  EXPECT_THAT(named.err, HasSubstr("an index is a .safetensors file"));
  const std::string empty = file("empty.txt", "\n \n");
  const Ended nothing = run_regard(ask(empty, {"a cat"}));
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("has no lines to search"));
}

TEST_F(Embed, AnEncoderIsSeenInTheViewer) {
  const std::string page = (folder_ / "page.html").string();
  const Arguments view = {"view",          "--model",  model().string(),
                          "the cats sat.", "--export", page};
  Arguments more = view;
  more.insert(more.end(), {"--layer", "1", "--head", "0"});
  const Ended ended = run_regard(more);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "page -> " + page + "\n");
  const std::string html = testing::read_text(page);
  EXPECT_THAT(html, HasSubstr(R"(["[CLS]","the","cats","sat",".","[SEP]"])"));
  more = view;
  more.insert(more.end(), {"--layer", "2"});
  const Ended none = run_regard(more);
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("--layer: there are layers 0 .. 1; got 2"));
  more = view;
  more.insert(more.end(), {"--to", "de"});
  EXPECT_THAT(run_regard(more).err, HasSubstr("an encoder does not translate"));
  more = view;
  more.insert(more.end(), {"--beam", "2"});
  const Ended beam = run_regard(more);
  EXPECT_EQ(beam.code, 2);
  EXPECT_THAT(beam.err, HasSubstr("--beam: only a translator searches"));
}

TEST(ContentHash, ChangesWithEveryByteAndWithTheLength) {
  std::vector<std::string> seen;
  std::string text(100, '\0');
  seen.push_back(cli::content_hash(text));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = 1;
    seen.push_back(cli::content_hash(changed));
    seen.push_back(cli::content_hash(text.substr(0, i)));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(seen[0].size(), 16u);
}

TEST(Progress, TellsShareRateAndTimeLeft) {
  EXPECT_EQ(cli::Progress::text("indexing", "lines", 512, 1024, 2.0),
            "indexing [##########          ]  50 %  512 of 1024 lines, 256 "
            "lines/s, 2 s left");
  EXPECT_EQ(cli::Progress::text("indexing", "lines", 0, 10, 0.5),
            "indexing [                    ]   0 %  0 of 10 lines");
}

}  // namespace
}  // namespace regard::test
