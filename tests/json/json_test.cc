// SPDX-License-Identifier: Apache-2.0
#include "json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regard {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(const auto& body) {
  try {
    body();
  } catch (const JsonError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Json, ListsOfNamesAndValuesAreObjectsAndAllOthersArrays) {
  const Json json = {{"b", 1}, {"a", {1, 2.5, "x", nullptr, true}}};
  EXPECT_EQ(json.dump(), R"({"a":[1,2.5,"x",null,true],"b":1})");
  EXPECT_EQ(Json({"a", 1}).dump(), R"(["a",1])");
  EXPECT_EQ(Json({{"a", 1}, {2, 3}}).dump(), R"([["a",1],[2,3]])");
  EXPECT_EQ(Json::array({"a", 1}).dump(), R"(["a",1])");
  EXPECT_EQ(Json::array().dump() + Json::object().dump(), "[]{}");
  EXPECT_EQ(Json(std::vector<std::vector<int>>{{1}, {}}).dump(), "[[1],[]]");
}

TEST(Json, WritesMembersByNameOrAsTheyCame) {
  Json json = {{"b", 1}, {"a", {{"d", 2}, {"c", 3}}}};
  json["0"] = "late";
  json["b"] = 4;  // keeps its place
  EXPECT_EQ(json.dump(), R"({"0":"late","a":{"c":3,"d":2},"b":4})");
  EXPECT_EQ(json.dump({.keys = Json::Keys::kAsWritten}),
            R"({"b":4,"a":{"d":2,"c":3},"0":"late"})");
  Json more = {{"z", 1}};
  more.update(json);
  EXPECT_EQ(more.dump({.keys = Json::Keys::kAsWritten}),
            R"({"z":1,"b":4,"a":{"d":2,"c":3},"0":"late"})");
}

// The text that nlohmann::json writes of the same, indented or not.
TEST(Json, ReadsAndWritesAsTheOriginalDoes) {
  for (
      const std::string text :
      {R"({"a":[],"b":{},"c":[[],[1]],"d":{"e":{"f":[true,false,null]}}})",
       R"([0,-1,9223372036854775807,18446744073709551615,-9223372036854775808])",
       R"([0.1,1e-5,1e300,-0.0,123456789.125,5e-324,1.0,100000.0])",
       R"(["","\"\\\b\f\n\r\t\u0001\u007f","\u00e9\ud83d\ude00"])",
       R"({"b":1,"a":2,"b":3})", " [ 1 , 2 ] "}) {
    const nlohmann::json original = nlohmann::json::parse(text);
    const Json json = Json::parse(text);
    for (const int indent : {-1, 0, 1, 2}) {
      EXPECT_EQ(json.dump(indent), original.dump(indent));
    }
    EXPECT_EQ(json.dump({.ascii = true}), original.dump(-1, ' ', true));
  }
}

TEST(Json, GivesValuesOfTheirTypes) {
  const Json json = Json::parse(
      R"({"i": -3, "u": 18446744073709551615, "r": 2.5, "t": "x", "f": true})");
  EXPECT_EQ(json.at("i").get<std::int64_t>(), -3);
  EXPECT_EQ(json.at("i").get<double>(), -3.0);
  EXPECT_EQ(json.at("u").get<std::int64_t>(),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(json.at("r").get<float>(), 2.5f);
  EXPECT_EQ(json.at("t").get<std::string>(), "x");
  EXPECT_TRUE(json.at("t") == "x");
  EXPECT_TRUE(json.at("f").get<bool>());
  EXPECT_EQ(json.value("i", 7), -3);
  EXPECT_EQ(json.value("no", 7), 7);
  EXPECT_EQ(json.find("no"), nullptr);
  EXPECT_TRUE(json.at("u").is_integer() && json.at("u").is_number());
  EXPECT_FALSE(json.at("r").is_integer());
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("f", "i", "r", "t", "u"));
  int sum = 0;
  for (const Json& element : Json({1, 2, 3})) sum += element.get<int>();
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(Json(5).begin(), Json(5).end());
  EXPECT_STREQ(json.at("r").type_name(), "number");
}

TEST(Json, RefusesWhatIsNotThere) {
  const Json json = {{"a", "x"}};
  EXPECT_EQ(error_of([&] { json.at("b"); }), "there is no member 'b'");
  EXPECT_EQ(error_of([&] { json.at("a").get<int>(); }),
            "a value must be an integer; it is of the type string");
  EXPECT_EQ(error_of([&] { json.at("a").get<bool>(); }),
            "a value must be true or false; it is of the type string");
  EXPECT_EQ(error_of([&] { json.text(); }),
            "a value must be a text; it is of the type object");
  EXPECT_EQ(error_of([&] { Json(1.5).get<int>(); }),
            "a value must be an integer; it is of the type number");
  EXPECT_EQ(error_of([&] { Json({1})[1]; }),
            "a value must be an array with more elements; it is of the type "
            "array");
}

TEST(Json, RefusesTextsThatAreNoJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "nan", "'a'",
                           "\"\xff\"", "[1e999]", "// 1"}) {
    EXPECT_THAT(error_of([&] { Json::parse(text); }),
                StartsWith("must be JSON: "))
        << text;
    EXPECT_TRUE(Json::parse_or_null(text).is_null());
  }
  const std::string cut("{}\0{}", 5);
  EXPECT_EQ(error_of([&] { Json::parse(cut); }), "must be JSON: byte 3 is 0");
  EXPECT_TRUE(Json::parse_or_null(cut).is_null());
  const std::string open(64, '['), close(64, ']');
  EXPECT_EQ(Json::parse(open + close).dump(), open + close);
  EXPECT_EQ(error_of([&] { Json::parse("[" + open + close + "]"); }),
            "may be nested 64 deep at most");
}

TEST(Json, AnErrorShowsLittleOfTheTextAndOnlyAscii) {
  const std::string error =
      error_of([] { Json::parse("\"\xc3\xa9\x01" + std::string(1000, 'a')); });
  EXPECT_THAT(error, HasSubstr("\\xc3\\xa9"));
  EXPECT_LE(error.size(), 1000u);
  const std::string unclosed =
      error_of([] { Json::parse("\"" + std::string(1 << 20, 'a')); });
  EXPECT_THAT(unclosed, StartsWith("must be JSON: parse error at line 1"));
  EXPECT_THAT(unclosed, EndsWith("aaa..."));
  EXPECT_LE(unclosed.size(), 300u);
}

TEST(Json, BytesThatAreNotUtf8AreReplacedOrRefused) {
  const Json json = {{"a", "x\xffy"}};
  EXPECT_EQ(error_of([&] { json.dump(); }), "a text is not UTF-8");
  EXPECT_EQ(json.dump({.replace_invalid = true}), "{\"a\":\"x\xef\xbf\xbdy\"}");
}

TEST(Json, CopiesShareNothing) {
  Json list = {1, 2};
  const Json copy = {{"list", list}};
  list.push_back(3);
  EXPECT_EQ(list.dump(), "[1,2,3]");
  EXPECT_EQ(copy.dump(), R"({"list":[1,2]})");
}

}  // namespace
}  // namespace regard
