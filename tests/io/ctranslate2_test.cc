// SPDX-License-Identifier: Apache-2.0
#include "regard/io/ctranslate2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/core/error.h"
#include "support/model_files.h"

namespace regard {
namespace {

using test::bytes_of_number;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Type = Ctranslate2File::Type;

std::string name_bytes(const std::string& text) {
  return bytes_of_number(static_cast<std::uint16_t>(text.size() + 1)) + text +
         '\0';
}

template <typename T>
std::string numbers(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) bytes += bytes_of_number(value);
  return bytes;
}

struct Writer {
  std::uint32_t version = 6;
  std::vector<std::string> variables{};
  std::vector<std::pair<std::string, std::string>> aliases{};

  Writer& add(const std::string& name, std::vector<std::uint32_t> shape,
              Type type, const std::string& bytes) {
    std::string text = name_bytes(name);
    text += static_cast<char>(shape.size());
    text += numbers(shape);
    const auto size = static_cast<std::uint32_t>(bytes.size());
    if (version >= 4) {
      text += static_cast<char>(type);
      text += bytes_of_number(size);
    } else {
      const std::uint32_t width = type == Type::kInt8    ? 1
                                  : type == Type::kInt16 ? 2
                                                         : 4;
      text += static_cast<char>(width);
      text += bytes_of_number(size / width);
    }
    variables.push_back(text + bytes);
    return *this;
  }

  std::string bytes() const {
    std::string text = bytes_of_number(version) +
                       name_bytes("TransformerSpec") +
                       bytes_of_number<std::uint32_t>(7);
    text += bytes_of_number(static_cast<std::uint32_t>(variables.size()));
    for (const std::string& variable : variables) text += variable;
    if (version < 3) return text;
    text += bytes_of_number(static_cast<std::uint32_t>(aliases.size()));
    for (const auto& [alias, name] : aliases) {
      text += name_bytes(alias) + name_bytes(name);
    }
    return text;
  }
};

Ctranslate2File parse(const std::string& bytes) {
  return Ctranslate2File::parse(std::as_bytes(std::span(bytes)));
}

std::string refusal(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const ParseError& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<float> values(const Ctranslate2File& file,
                          const std::string& name) {
  const Tensor tensor = file.values(name);
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

TEST(Ctranslate2File, ReadsEveryTypeAsFloat) {
  Writer writer;
  writer.add("f", {3}, Type::kFloat32, numbers<float>({1, -2, 0.5f}))
      .add("h", {2}, Type::kFloat16, numbers<std::uint16_t>({0x3C00, 0xC000}))
      .add("b", {2}, Type::kBFloat16, numbers<std::uint16_t>({0x3F80, 0xC000}))
      .add("q", {2, 2}, Type::kInt8, numbers<std::int8_t>({6, -8, 10, 5}))
      .add("q_scale", {2}, Type::kFloat32, numbers<float>({2, 10}))
      .add("w", {2, 2}, Type::kInt16, numbers<std::int16_t>({500, -250, 8, 1}))
      .add("w_scale", {}, Type::kFloat32, numbers<float>({1000}));
  writer.aliases = {{"again", "q"}};
  const std::string bytes = writer.bytes();
  const Ctranslate2File file = parse(bytes);
  EXPECT_EQ(file.spec(), "TransformerSpec");
  EXPECT_EQ(file.revision(), 7u);
  EXPECT_THAT(values(file, "f"), ElementsAre(1, -2, 0.5f));
  EXPECT_THAT(values(file, "h"), ElementsAre(1, -2));
  EXPECT_THAT(values(file, "b"), ElementsAre(1, -2));
  EXPECT_THAT(values(file, "q"), ElementsAre(3, -4, 1, 0.5f));
  EXPECT_THAT(values(file, "again"), ElementsAre(3, -4, 1, 0.5f));
  EXPECT_THAT(values(file, "w"), ElementsAre(0.5f, -0.25f, 0.008f, 0.001f));
  EXPECT_THAT(file.values("q").shape(), ElementsAre(2, 2));
}

// Until version 3, the width of an element says what it is.
TEST(Ctranslate2File, ReadsOldVersions) {
  Writer writer{.version = 2};
  writer.add("f", {1}, Type::kFloat32, numbers<float>({3}))
      .add("w", {2}, Type::kInt16, numbers<std::int16_t>({4, 6}))
      .add("w_scale", {}, Type::kFloat32, numbers<float>({2}));
  const std::string bytes = writer.bytes();
  EXPECT_THAT(values(parse(bytes), "f"), ElementsAre(3));
  EXPECT_THAT(values(parse(bytes), "w"), ElementsAre(2, 3));
}

TEST(Ctranslate2File, KnowsSettings) {
  Writer writer;
  writer.add("a", {}, Type::kInt8, numbers<std::int8_t>({-3}))
      .add("b", {}, Type::kInt16, numbers<std::int16_t>({300}))
      .add("c", {}, Type::kInt32, numbers<std::int32_t>({70000}))
      .add("d", {2}, Type::kInt8, numbers<std::int8_t>({1, 2}));
  const std::string bytes = writer.bytes();
  const Ctranslate2File file = parse(bytes);
  EXPECT_EQ(file.setting("a"), -3);
  EXPECT_EQ(file.setting("b"), 300);
  EXPECT_EQ(file.setting("c"), 70000);
  EXPECT_EQ(file.setting("none"), std::nullopt);
  EXPECT_THROW(file.setting("d"), ParseError);
}

TEST(Ctranslate2File, NamesWhatIsWrong) {
  Writer writer;
  writer.add("one", {2}, Type::kFloat32, numbers<float>({1, 2}));
  const std::string good = writer.bytes();
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_THAT(refusal(good + "x"), HasSubstr("1 bytes follow"));
  EXPECT_THAT(refusal(good.substr(0, 3)), HasSubstr("within the version"));
  for (std::size_t length = 4; length < good.size(); ++length) {
    EXPECT_THAT(refusal(good.substr(0, length)), HasSubstr("ends within"))
        << length;
  }
  EXPECT_THAT(refusal(Writer{.version = 1}.bytes()),
              HasSubstr("this is version 1"));
  EXPECT_THAT(refusal(Writer{.version = 7}.bytes()),
              HasSubstr("this is version 7"));

  Writer twice = writer;
  twice.variables.push_back(twice.variables[0]);
  EXPECT_THAT(refusal(twice.bytes()), HasSubstr("'one' is there twice"));
  Writer alias = writer;
  alias.aliases = {{"two", "none"}};
  EXPECT_THAT(refusal(alias.bytes()), HasSubstr("'none' is missing"));
  EXPECT_THAT(
      refusal(Writer()
                  .add("odd", {3}, Type::kFloat32, numbers<float>({1, 2}))
                  .bytes()),
      AllOf(HasSubstr("'odd'"), HasSubstr("12 bytes"), HasSubstr("it has 8")));
  EXPECT_THAT(
      refusal(Writer().add("x", {1}, static_cast<Type>(9), "a").bytes()),
      HasSubstr("'x' has an unknown type: 9"));
  // Nothing is allocated for what is not there.
  constexpr std::uint32_t kHuge = 0xFFFFFFFF;
  EXPECT_THAT(
      refusal(Writer()
                  .add("huge", {kHuge, kHuge, kHuge}, Type::kFloat32, "")
                  .bytes()),
      HasSubstr("ends within the variable 'huge'"));
  EXPECT_THAT(
      refusal(Writer()
                  .add("none", {0, kHuge, kHuge, kHuge}, Type::kFloat32, "")
                  .bytes()),
      AllOf(HasSubstr("'none'"), HasSubstr("a shape that no memory holds")));
}

TEST(Ctranslate2File, RefusesWeightsWithoutAScaleThatFits) {
  const auto refused = [](const Writer& writer, const char* name) {
    const std::string bytes = writer.bytes();
    try {
      parse(bytes).values(name);
    } catch (const ParseError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  Writer writer;
  writer.add("q", {2, 1}, Type::kInt8, "ab");
  EXPECT_THAT(refused(writer, "q"), HasSubstr("'q_scale' is missing"));
  EXPECT_THAT(refused(writer, "none"), HasSubstr("'none' is missing"));
  writer.add("q_scale", {3}, Type::kFloat32, numbers<float>({1, 2, 3}));
  EXPECT_THAT(refused(writer, "q"),
              HasSubstr("the scale of 'q' must be float32, one number or 2; it "
                        "has 3"));
}

}  // namespace
}  // namespace regard
