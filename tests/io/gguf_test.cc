// SPDX-License-Identifier: Apache-2.0
#include "regard/io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"
#include "support/model_files.h"

namespace regard {
namespace {

using test::bytes_of_number;
using test::gguf_text;
using test::GgufWriter;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::text_of;

// What follows "GgufFile::parse: " when the file is refused.
std::string refused(const std::string& file) {
  const std::string text =
      text_of<ParseError>([&file] { GgufFile::parse(bytes_of(file)); });
  const std::string start = "GgufFile::parse: ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

std::string refused(const GgufWriter& writer) {
  return refused(writer.bytes());
}

TEST(Gguf, ReadsSettingsAndTensors) {
  const std::string bytes =
      GgufWriter()
          .text("name", "a model")
          .integer("layers", 5)
          .number<std::int64_t>("negative", 11, -7)
          .number<std::uint8_t>("byte", 0, 200)
          .number<std::uint64_t>("long", 10, std::uint64_t{1} << 40)
          .real("epsilon", 0.5f)
          .number<double>("double", 12, 0.1)
          .number<std::uint8_t>("yes", 7, 1)
          .texts("pieces", {"a", "", "bc"})
          .numbers<float>("scores", 6, {1.5f, -2.0f})
          .numbers<std::int32_t>("types", 5, {3, -1})
          .tensor("m", {3, 2}, {1, 2, 3, 4, 5, 6})
          .tensor("v", {2}, {7, 8})
          .tensor("none", {0, 4}, {})
          .tensor("scalar", {}, {9})
          .bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  EXPECT_EQ(file.text("name"), "a model");
  EXPECT_EQ(file.integer("layers"), 5);
  EXPECT_EQ(file.integer("negative"), -7);
  EXPECT_EQ(file.integer("byte"), 200);
  EXPECT_EQ(file.integer("long"), std::int64_t{1} << 40);
  EXPECT_EQ(file.real("epsilon"), 0.5);
  EXPECT_EQ(file.real("double"), 0.1);
  EXPECT_EQ(file.flag("yes"), true);
  EXPECT_THAT(*file.texts("pieces"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(*file.reals("scores"), ElementsAre(1.5, -2.0));
  EXPECT_THAT(*file.integers("types"), ElementsAre(3, -1));
  EXPECT_FALSE(file.integer("other").has_value());
  EXPECT_FALSE(file.texts("other").has_value());
  EXPECT_EQ(file.keys().size(), 11u);
  EXPECT_THAT(file.names(), ElementsAre("m", "none", "scalar", "v"));
  EXPECT_EQ(file.shape("m"), (Shape{2, 3}));  // slowest first
  EXPECT_THAT(file.values("m"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(file.values("v"), ElementsAre(7, 8));
  EXPECT_THAT(file.values("none"), IsEmpty());
  EXPECT_THAT(file.values("scalar"), ElementsAre(9));
  EXPECT_TRUE(file.contains("v"));
  EXPECT_FALSE(file.contains("w"));
  EXPECT_EQ(text_of<InvalidArgument>([&] { file.values("w"); }),
            "GgufFile::parse: no tensor is called 'w'");
}

TEST(Gguf, ReadsVersion2AndAnotherAlignment) {
  GgufWriter writer;
  writer.version = 2;
  writer.alignment = 8;
  writer.integer("general.alignment", 8)
      .tensor("a", {1}, {1})
      .tensor("b", {1}, {2});
  const std::string bytes = writer.bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  EXPECT_THAT(file.values("b"), ElementsAre(2));
}

// Some sort of a few elements keeps their order, one of many need not.
TEST(Gguf, AnEmptyTensorMayBeginWhereAnotherDoes) {
  GgufWriter writer;
  std::vector<GgufTensor> tensors;
  for (int i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i);
    const std::vector<float> values(8, static_cast<float>(i));
    writer.tensor("empty" + number, {0}, {}).tensor("t" + number, {8}, values);
    tensors.push_back({"empty" + number, {0}, "F32", [] {
                         return std::vector<std::byte>();
                       }});
    tensors.push_back({"t" + number, {8}, "F32", [values] {
                         const auto bytes = std::as_bytes(std::span(values));
                         return std::vector<std::byte>(bytes.begin(),
                                                       bytes.end());
                       }});
  }
  const std::string bytes = writer.bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  const testing::TemporaryFolder folder;
  save_gguf(folder / "x.gguf", file, {}, tensors);
  const GgufFile saved = GgufFile::open(folder / "x.gguf");
  for (const GgufFile* one : {&file, &saved}) {
    EXPECT_EQ(one->names().size(), 80u);
    EXPECT_THAT(one->values("empty17"), IsEmpty());
    EXPECT_EQ(one->values("t17")[7], 17.0f);
    EXPECT_EQ(one->values("t39")[0], 39.0f);
  }
}

TEST(SaveGguf, RefusesWhatWouldNotBeReadBack) {
  const testing::TemporaryFolder folder;
  const std::string bytes = GgufWriter().integer("a", 1).bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  const auto refused =
      [&](const std::vector<GgufTensor>& tensors,
          const std::map<std::string, std::uint32_t>& set = {}) {
        return text_of<InvalidArgument>(
            [&] { save_gguf(folder / "x.gguf", file, set, tensors); });
      };
  const auto tensor = [](const std::string& name, const Shape& shape) {
    return GgufTensor{name, shape, "F32",
                      [] { return std::vector<std::byte>(4); }};
  };
  EXPECT_EQ(refused({tensor("t", {1}), tensor("u", {1}), tensor("t", {1})}),
            "save_gguf: the tensor 't' comes twice");
  EXPECT_EQ(refused({tensor("t", {1, 1, 1, 1, 1})}),
            "save_gguf: a tensor has at most 4 dimensions; 't' is [1, 1, 1, 1, "
            "1]");
  const std::string name(65536, 'n');
  const std::string too_long =
      "save_gguf: a name may have at most 65535 bytes; '" +
      std::string(200, 'n') + "...' has 65536";
  EXPECT_EQ(refused({tensor(name, {1})}), too_long);
  EXPECT_EQ(refused({}, {{name, 1}}), too_long);
  EXPECT_EQ(refused({}, {{"general.alignment", 64}}),
            "save_gguf: general.alignment is that of the other file, and "
            "cannot be set");
  EXPECT_THAT(refused({tensor("t", {2, -1})}),
              HasSubstr("no extent may be negative; shape is [2, -1]"));
  constexpr std::int64_t kHalf = std::int64_t{1} << 32;
  EXPECT_THAT(refused({tensor("t", {kHalf, kHalf})}),
              HasSubstr("the elements must fit in 63 bits of bytes"));
  EXPECT_THAT(folder.files(), IsEmpty());
  EXPECT_EQ(refused({tensor(name.substr(1), {1, 1, 1, 1})}, {{"b", 2}}),
            "nothing was thrown");
}

TEST(Gguf, ReadsTheModelOfOthers) {
  const std::filesystem::path path =
      std::filesystem::path(REGARD_SOURCE_DIR) /
      "../shared/models/stories260K/stories260K.f32.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.names().size(), 47u);
  EXPECT_EQ(file.shape("blk.4.ffn_down.weight"), (Shape{64, 172}));
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens")->at(258), "<0xFF>");
}

TEST(Gguf, RefusesWhatIsNoGguf) {
  EXPECT_EQ(refused(std::string()), "a GGUF file begins with the letters GGUF");
  EXPECT_EQ(refused("GGU"), "a GGUF file begins with the letters GGUF");
  EXPECT_EQ(refused("GGML12345678"),
            "a GGUF file begins with the letters GGUF");
  EXPECT_EQ(refused("GGUF12"),
            "the file ends within the version: 4 bytes are wanted at byte 4, 2 "
            "are left");
  GgufWriter writer;
  writer.version = 1;
  EXPECT_EQ(refused(writer), "versions 2 and 3 are read; this is version 1");
  writer.version = 4;
  EXPECT_EQ(refused(writer), "versions 2 and 3 are read; this is version 4");
  writer.version = 0x03000000;
  EXPECT_EQ(refused(writer), "the file is big-endian, which is not read");
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string bytes = GgufWriter()
                                .text("name", "a model")
                                .texts("pieces", {"a", "bc"})
                                .numbers<float>("scores", 6, {1.5f, -2.0f})
                                .tensor("m", {8}, std::vector<float>(8, 1.0f))
                                .bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    EXPECT_NE(refused(cut), "nothing was thrown") << size;
  }
  EXPECT_EQ(refused(bytes), "nothing was thrown");
}

TEST(Gguf, RefusesAbsurdCounts) {
  GgufWriter writer;
  writer.more_tensors = std::int64_t{1} << 60;
  EXPECT_THAT(refused(writer),
              HasSubstr("the file says that it has 1152921504606846976 "
                        "tensors, more than its"));
  writer.more_tensors = 0;
  writer.more_settings = -1;
  EXPECT_THAT(refused(writer),
              HasSubstr("it has 18446744073709551615 settings, more than"));
  const auto with = [](std::uint32_t type, const std::string& bytes) {
    return refused(GgufWriter().raw_setting("k", type, bytes));
  };
  const std::string many = bytes_of_number(~std::uint64_t{0});
  EXPECT_THAT(with(8, many), HasSubstr("the file ends within a text: "
                                       "18446744073709551615 bytes"));
  EXPECT_THAT(with(9, bytes_of_number<std::uint32_t>(4) + many),
              HasSubstr("an array of 18446744073709551615 elements does not "
                        "fit in the"));
  EXPECT_THAT(with(9, bytes_of_number<std::uint32_t>(8) + many),
              HasSubstr("an array of 18446744073709551615 elements does not "
                        "fit in the"));
  EXPECT_THAT(with(9, bytes_of_number<std::uint32_t>(13) + many),
              HasSubstr("types of settings are 0 to 12; this is 13"));
  EXPECT_EQ(with(99, ""), "types of settings are 0 to 12; this is 99");
  std::string nested;
  for (int i = 0; i < 10; ++i) {
    nested +=
        bytes_of_number<std::uint32_t>(9) + bytes_of_number<std::uint64_t>(1);
  }
  EXPECT_EQ(with(9, nested), "arrays may be nested 4 deep at most");
  EXPECT_EQ(with(7, "\2"), "a bool is 0 or 1; this is 2");
  EXPECT_EQ(with(10, many),
            "an integer has at most 63 bits; this is 18446744073709551615");
  GgufWriter long_key;
  long_key.integer(std::string(70000, 'k'), 1);
  EXPECT_EQ(refused(long_key),
            "a name may have at most 65535 bytes; a key has 70000");
}

TEST(Gguf, RefusesWhatComesTwice) {
  EXPECT_EQ(refused(GgufWriter().integer("a", 1).integer("a", 2)),
            "the key 'a' comes twice");
  EXPECT_EQ(refused(GgufWriter().tensor("t", {1}, {1}).tensor("t", {1}, {2})),
            "the tensor 't' comes twice");
}

TEST(Gguf, RefusesTensorsThatDoNotFit) {
  const auto described = [](const std::vector<std::uint64_t>& extents,
                            std::uint32_t type, std::uint64_t offset) {
    return refused(GgufWriter()
                       .tensor("first", {8}, std::vector<float>(8, 1.0f))
                       .description("t", extents, type, offset));
  };
  const std::string known =
      "tensors of the types F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
      "Q4_K, Q5_K and Q6_K are read; 't' is ";
  EXPECT_EQ(described({256}, 10, 0), known + "Q2_K");
  EXPECT_EQ(described({256}, 15, 0), known + "Q8_K");
  EXPECT_EQ(described({8}, 39, 0), known + "MXFP4");
  EXPECT_EQ(described({8}, 4, 0), known + "type 4");
  EXPECT_EQ(described({8}, 777, 0), known + "type 777");
  EXPECT_EQ(described({40, 2}, 8, 0),
            "rows of Q8_0 are whole blocks of 32 elements; 't' is [2, 40]");
  EXPECT_EQ(described({128, 2}, 14, 0),
            "rows of Q6_K are whole blocks of 256 elements; 't' is [2, 128]");
  // Two blocks of 144 bytes are 256 too many.
  EXPECT_EQ(described({256, 2}, 12, 32),
            "'t' lies at bytes 32 to 320 of 32; the file may have been cut "
            "off");
  EXPECT_EQ(described({1, 1, 1, 1, 1}, 0, 0),
            "a tensor has at most 4 dimensions; 't' has 5");
  EXPECT_EQ(described({1, 1}, 0, 8),
            "tensors start at multiples of 32; 't' starts at 8");
  EXPECT_EQ(described({4}, 0, 0),
            "'t' overlaps the tensor before it, which ends at byte 32; it "
            "starts at 0");
  EXPECT_EQ(described({4}, 0, 32),
            "'t' lies at bytes 32 to 48 of 32; the file may have been cut off");
  EXPECT_EQ(described({4}, 0, std::numeric_limits<std::uint64_t>::max() - 31),
            "'t' lies at bytes 18446744073709551584 to 18446744073709551600 of "
            "32; the file may have been cut off");
  const std::uint64_t half = std::uint64_t{1} << 32;
  EXPECT_EQ(described({half, half}, 0, 32),
            "the shape of 't' has more elements than can be counted");
  EXPECT_EQ(described({~std::uint64_t{0}}, 0, 32),
            "the shape of 't' has more elements than can be counted");
  // Nor does an extent of zero hide the others.
  EXPECT_EQ(described({half, 0, half}, 0, 32),
            "the shape of 't' has more elements than can be counted");
}

TEST(Gguf, RefusesAnAlignmentThatIsNone) {
  for (const std::uint32_t alignment : {0u, 4u, 12u, 1u << 24}) {
    EXPECT_EQ(refused(GgufWriter().integer("general.alignment", alignment)),
              "general.alignment must be a multiple of 8, at most 1048576; it "
              "is " +
                  std::to_string(alignment));
  }
  EXPECT_EQ(
      refused(GgufWriter().number<std::int32_t>("general.alignment", 5, -32)),
      "general.alignment must be a multiple of 8, at most 1048576; it is "
      "-32");
}

TEST(Gguf, RefusesASettingOfAnotherType) {
  const std::string bytes = GgufWriter()
                                .integer("a", 1)
                                .texts("t", {"x"})
                                .numbers<std::int32_t>("i", 5, {1})
                                .bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  const auto refusal = [](const std::function<void()>& action) {
    return text_of<ParseError>(action);
  };
  EXPECT_EQ(refusal([&] { file.text("a"); }),
            "GgufFile::parse: a must be a text");
  EXPECT_EQ(refusal([&] { file.real("a"); }),
            "GgufFile::parse: a must be a real number");
  EXPECT_EQ(refusal([&] { file.flag("a"); }),
            "GgufFile::parse: a must be a bool");
  EXPECT_EQ(refusal([&] { file.integer("t"); }),
            "GgufFile::parse: t must be an integer");
  EXPECT_EQ(refusal([&] { file.texts("a"); }),
            "GgufFile::parse: a must be an array of texts");
  EXPECT_EQ(refusal([&] { file.texts("i"); }),
            "GgufFile::parse: i must be an array of texts");
  EXPECT_EQ(refusal([&] { file.reals("i"); }),
            "GgufFile::parse: i must be an array of real numbers");
  EXPECT_EQ(refusal([&] { file.integers("t"); }),
            "GgufFile::parse: t must be an array of integers");
}

TEST(Gguf, NamesTheFileThatCannotBeRead) {
  EXPECT_EQ(text_of<IoError>([] { GgufFile::open("/no/such/file"); }),
            "GgufFile::open: cannot read '/no/such/file': No such file or "
            "directory");
  const testing::TemporaryFolder folder;
  testing::write_text(folder / "a.gguf", "none");
  EXPECT_EQ(text_of<ParseError>([&] { GgufFile::open(folder / "a.gguf"); }),
            "GgufFile::open: '" + (folder / "a.gguf").string() +
                "': a GGUF file begins with the letters GGUF");
}

TEST(Gguf, WantsAlignedBytes) {
  std::string bytes = "x";
  bytes += GgufWriter().bytes();
  const std::string_view shifted = std::string_view(bytes).substr(1);
  EXPECT_EQ(
      text_of<InvalidArgument>([&] { GgufFile::parse(bytes_of(shifted)); }),
      "GgufFile::parse: the bytes must be aligned for float");
}

}  // namespace
}  // namespace regard
