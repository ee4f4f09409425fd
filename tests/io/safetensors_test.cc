// SPDX-License-Identifier: Apache-2.0
#include "regard/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"

namespace regard {
namespace {

using regard::testing::bytes_of;
using regard::testing::raw;
using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::text_of;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string file_of(const std::string& json, const std::string& data = "") {
  return raw<std::uint64_t>({json.size()}) + json + data;
}

std::string refusal(const std::string& file) {
  return text_of<ParseError>(
      [&file] { SafetensorsFile::parse(bytes_of(file)); });
}

// What follows "SafetensorsFile::parse: " when this header is refused.
std::string refused(const std::string& json, const std::string& data = "") {
  const std::string text = refusal(file_of(json, data));
  const std::string start = "SafetensorsFile::parse: ";
  EXPECT_THAT(text, StartsWith(start));
  return text.substr(std::min(start.size(), text.size()));
}

// Written by safetensors 0.8.0 (Python) from a StateDict of NumPy arrays.
const std::string kByPeer = file_of(
    R"({"__metadata__":{"format":"np","k":"v"},)"
    R"("a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
    R"("b.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},)"
    R"("empty":{"dtype":"F32","shape":[0,4],"data_offsets":[40,40]},)"
    R"("half":{"dtype":"F16","shape":[],"data_offsets":[40,42]},)"
    R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[42,45]}} )",
    raw<std::int64_t>({-1, std::int64_t{1} << 40}) +
        raw<float>({1.5f, -2.0f, 3.0f, 4.0f, 5.0f, -6.5f}) +
        raw<std::uint16_t>({0x3e00}) + std::string("\1\0\1", 3));

StateDict state_of_peer() {
  const std::array<std::int64_t, 2> a{-1, std::int64_t{1} << 40};
  const std::array<bool, 3> flag{true, false, true};
  const std::array<Float16, 1> half{Float16(1.5f)};
  StateDict state;
  state["a"] = Tensor(std::span<const std::int64_t>(a), {2});
  state["b.weight"] = Tensor({1.5f, -2.0f, 3.0f, 4.0f, 5.0f, -6.5f}, {2, 3});
  state["flag"] = Tensor(std::span<const bool>(flag), {3});
  state["half"] = Tensor(std::span<const Float16>(half), {});
  state["empty"] = Tensor(Shape{0, 4});
  return state;
}

void expect_state_of_peer(const SafetensorsFile& file) {
  EXPECT_THAT(file.names(),
              ElementsAre("a", "b.weight", "empty", "flag", "half"));
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "np"}, {"k", "v"}}));
  EXPECT_TRUE(file.contains("half"));
  EXPECT_FALSE(file.contains("hal"));
  EXPECT_EQ(file.dtype("b.weight"), DType::kFloat32);
  EXPECT_EQ(file.shape("b.weight"), (Shape{2, 3}));
  EXPECT_EQ(file.data("b.weight").size(), 24u);
  const auto weight = file.view<float, 2>("b.weight");
  EXPECT_EQ(weight(1, 2), -6.5f);
  EXPECT_EQ((file.view<std::int64_t, 1>("a")(1)), std::int64_t{1} << 40);
  EXPECT_TRUE((file.view<bool, 1>("flag")(2)));
  EXPECT_EQ((file.view<float, 2>("empty").size()), 0);
  const Tensor half = file.tensor("half");
  EXPECT_EQ(half.shape(), Shape{});
  EXPECT_EQ(half.values<Float16>()[0].bits, 0x3e00);
}

TEST(SafetensorsFile, ReadsWhatItsPeerWrites) {
  const TemporaryFolder folder;
  write_text(folder / "x.safetensors", kByPeer);
  expect_state_of_peer(SafetensorsFile::open(folder / "x.safetensors"));
}

TEST(SafetensorsFile, IsMovedWithItsMapping) {
  const TemporaryFolder folder;
  write_text(folder / "x", kByPeer);
  std::optional<SafetensorsFile> first = SafetensorsFile::open(folder / "x");
  const SafetensorsFile second = std::move(*first);
  first.reset();
  expect_state_of_peer(second);
}

TEST(SafetensorsFile, GivesAllItsTensorsAsAStateDict) {
  const StateDict state =
      SafetensorsFile::parse(bytes_of(kByPeer)).state_dict();
  ASSERT_EQ(state.size(), 5u);
  EXPECT_THAT(state.at("b.weight").values<float>(),
              ElementsAre(1.5f, -2.0f, 3.0f, 4.0f, 5.0f, -6.5f));
  EXPECT_EQ(state.at("empty").shape(), (Shape{0, 4}));
}

TEST(SafetensorsFile, ViewsLieInTheBytesThemselves) {
  const SafetensorsFile file = SafetensorsFile::parse(bytes_of(kByPeer));
  const auto* begin = kByPeer.data() + 8 + 336 + 16;
  EXPECT_EQ(static_cast<const void*>(file.data("b.weight").data()), begin);
}

TEST(SafetensorsFile, MayBeEmpty) {
  const std::string file = file_of("{}");
  EXPECT_THAT(SafetensorsFile::parse(bytes_of(file)).names(), IsEmpty());
}

TEST(SafetensorsFile, ReadsNamesOfAnyLanguageAndEscapes) {
  const std::string json =
      "{\"\xe6\xb3\xa8\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,"
      "1]},\"\\u6ce8\\n\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]"
      "}}   ";
  const std::string file = file_of(json, "xy");
  EXPECT_THAT(SafetensorsFile::parse(bytes_of(file)).names(),
              ElementsAre("\xe6\xb3\xa8", "\xe6\xb3\xa8\n"));
}

TEST(SafetensorsFile, RefusesToViewDataThatIsNotAlignedButCopiesIt) {
  for (std::size_t spaces = 0; spaces < 4; ++spaces) {
    const std::string json =
        R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})" +
        std::string(spaces, ' ');
    const std::string bytes = file_of(json, raw<float>({2.5f}));
    const SafetensorsFile file = SafetensorsFile::parse(bytes_of(bytes));
    EXPECT_EQ(file.tensor("x").values<float>()[0], 2.5f);
    const auto address =
        reinterpret_cast<std::uintptr_t>(file.data("x").data());
    if (address % 4 == 0) {
      EXPECT_EQ((file.view<float, 1>("x")(0)), 2.5f);
    } else {
      EXPECT_EQ(text_of<InvalidArgument>([&] { file.view<float, 1>("x"); }),
                "SafetensorsFile::parse: the data of 'x' is not aligned to 4 "
                "bytes, so it cannot be viewed in place; tensor() copies it");
    }
  }
}

TEST(SafetensorsFile, RefusesAViewOfAnotherTypeOrRankByName) {
  const SafetensorsFile file = SafetensorsFile::parse(bytes_of(kByPeer));
  EXPECT_EQ(text_of<InvalidArgument>([&] { file.view<double, 1>("a"); }),
            "SafetensorsFile::parse: the elements of 'a' are int64, not "
            "float64");
  EXPECT_EQ(
      text_of<InvalidArgument>([&] { file.view<std::int64_t, 2>("a"); }),
      "SafetensorsFile::parse: the rank of 'a' must be 2; its shape is [2]");
}

TEST(SafetensorsFile, RefusesAnUnknownNameAndListsThoseThereAre) {
  const SafetensorsFile file = SafetensorsFile::parse(bytes_of(kByPeer));
  EXPECT_EQ(text_of<InvalidArgument>([&] { file.tensor("weight"); }),
            "SafetensorsFile::parse: no tensor is called 'weight'; the file "
            "has 'a', 'b.weight', 'empty', 'flag', 'half'");
  EXPECT_EQ(text_of<InvalidArgument>([&] {
              const std::string none = file_of("{}");
              SafetensorsFile::parse(bytes_of(none)).shape("x");
            }),
            "SafetensorsFile::parse: no tensor is called 'x'; the file has "
            "none");
  std::string json = "{";
  for (char c = 'a'; c <= 'j'; ++c) {
    json += std::string(c == 'a' ? "" : ",") + "\"" + c +
            R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  const std::string many = file_of(json + "}");
  EXPECT_EQ(text_of<InvalidArgument>(
                [&] { SafetensorsFile::parse(bytes_of(many)).dtype("x"); }),
            "SafetensorsFile::parse: no tensor is called 'x'; the file has "
            "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', ...");
}

TEST(SafetensorsFile, RefusesABoolThatIsNeitherTrueNorFalse) {
  const std::string bytes = file_of(
      R"({"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\1\2");
  const SafetensorsFile file = SafetensorsFile::parse(bytes_of(bytes));
  const std::string text =
      "SafetensorsFile::parse: element 1 of 'x' is neither false (0) nor true "
      "(1): 2";
  EXPECT_EQ(text_of<ParseError>([&] { file.tensor("x"); }), text);
  EXPECT_EQ(text_of<ParseError>([&] { file.view<bool, 1>("x"); }), text);
  EXPECT_EQ(text_of<ParseError>([&] { file.state_dict(); }), text);
}

TEST(SafetensorsFile, NamesTheFileThatIsBrokenOrAbsent) {
  const TemporaryFolder folder;
  write_text(folder / "x", "");
  const std::string path = (folder / "x").string();
  EXPECT_EQ(text_of<ParseError>([&] { SafetensorsFile::open(path); }),
            "SafetensorsFile::open: '" + path +
                "': a safetensors file has at least 8 bytes; this has 0");
  EXPECT_EQ(text_of<IoError>([&] { SafetensorsFile::open(path + "z"); }),
            "SafetensorsFile::open: cannot read '" + path +
                "z': No such file or directory");
  EXPECT_EQ(text_of<IoError>([&] { SafetensorsFile::open(folder.path()); }),
            "SafetensorsFile::open: cannot read '" + folder.path().string() +
                "': it is a folder");
}

TEST(SafetensorsFile, RefusesAFileThatWasCutOffAnywhere) {
  for (std::size_t size = 0; size < kByPeer.size(); ++size) {
    EXPECT_THAT(refusal(kByPeer.substr(0, size)),
                StartsWith("SafetensorsFile::parse: "))
        << size;
  }
  EXPECT_EQ(refusal(kByPeer.substr(0, 100)),
            "SafetensorsFile::parse: the header has 336 bytes, but the file "
            "ends after 92; it may have been cut off");
  EXPECT_EQ(refusal(kByPeer.substr(0, kByPeer.size() - 1)),
            "SafetensorsFile::parse: tensor 'flag' ends at byte 45 of the "
            "data, which has 44; the file may have been cut off");
}

TEST(SafetensorsFile, RefusesAGiantHeader) {
  EXPECT_EQ(refusal(raw<std::uint64_t>({100'000'001}) + "{}"),
            "SafetensorsFile::parse: the header may have at most 100000000 "
            "bytes; this says 100000001 (is it a safetensors file?)");
  EXPECT_EQ(refusal(raw<std::uint64_t>({~std::uint64_t{0}})),
            "SafetensorsFile::parse: the header may have at most 100000000 "
            "bytes; this says 18446744073709551615 (is it a safetensors "
            "file?)");
}

TEST(SafetensorsFile, RefusesAHeaderThatIsNotJson) {
  EXPECT_EQ(refused(""), "the header must begin with '{'");
  EXPECT_EQ(refused(" {}"), "the header must begin with '{'");
  EXPECT_EQ(refused("[]"), "the header must begin with '{'");
  EXPECT_EQ(refused("{"), "the header is not valid JSON at byte 2");
  EXPECT_EQ(refused("{}x"), "the header is not valid JSON at byte 3");
  EXPECT_EQ(refused("{}{}"), "the header is not valid JSON at byte 3");
  EXPECT_EQ(refused("{\"a\xff\":1}"), "the header is not valid JSON at byte 4");
  EXPECT_EQ(refused("{\"\xc0\xaf\":1}"),
            "the header is not valid JSON at byte 3");
  EXPECT_EQ(refused("{\"\\ud800\":1}"),
            "the header is not valid JSON at byte 9");
  // The library would stop at the zero byte and never see the rest.
  EXPECT_EQ(refused(std::string("{}\0x", 4)),
            "the header is not valid JSON at byte 3");
}

TEST(SafetensorsFile, RefusesWhatTheFormatDoesNotHave) {
  EXPECT_EQ(refused(R"({"x":1})"),
            "tensor 'x' must be an object; it is a number");
  EXPECT_EQ(refused(R"({"x":-1})"),
            "tensor 'x' must be an object; it is a number");
  EXPECT_EQ(refused(R"({"x":null})"),
            "tensor 'x' must be an object; it is null");
  EXPECT_EQ(refused(R"({"x":[]})"),
            "tensor 'x' must be an object; it is a list");
  EXPECT_EQ(refused(R"({"x":"s"})"),
            "tensor 'x' must be an object; it is a string");
  EXPECT_EQ(refused(R"({"x":{"dtype":true}})"),
            "the dtype of tensor 'x' must be a string; it is a boolean");
  EXPECT_EQ(refused(R"({"x":{"dtype":"F32","dtype":"F32"}})"),
            "tensor 'x' has the field 'dtype' twice");
  EXPECT_EQ(refused(R"({"x":{"shape":[],"shape":[]}})"),
            "tensor 'x' has the field 'shape' twice");
  EXPECT_EQ(refused(R"({"x":{"data_offsets":[],"data_offsets":[]}})"),
            "tensor 'x' has the field 'data_offsets' twice");
  EXPECT_EQ(refused(R"({"x":{"color":"red"}})"),
            "tensor 'x' has an unknown field 'color'");
  EXPECT_EQ(refused(R"({"x":{}})"), "tensor 'x' has no dtype");
  EXPECT_EQ(refused(R"({"x":{"dtype":"F32"}})"), "tensor 'x' has no shape");
  EXPECT_EQ(refused(R"({"x":{"dtype":"F32","shape":[]}})"),
            "tensor 'x' has no data_offsets");
}

TEST(SafetensorsFile, RefusesTypesThatItDoesNotHave) {
  for (const std::string type : {"F8_E4M3", "U64", "f32", ""}) {
    EXPECT_EQ(refused(R"({"x":{"dtype":")" + type + R"("}})"),
              "tensor 'x' has the type '" + type +
                  "'; known are F32, F64, BF16, F16, I8, U8, I32, I64, BOOL");
  }
}

TEST(SafetensorsFile, RefusesBrokenShapesAndOffsets) {
  const auto shape = [](const std::string& value) {
    return refused(R"({"x":{"shape":)" + value + "}}");
  };
  const auto offsets = [](const std::string& value) {
    return refused(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":)" + value +
                   "}}");
  };
  const std::string counts =
      "the shape of tensor 'x' must be a list of counts; it has ";
  EXPECT_EQ(shape("3"),
            "the shape of tensor 'x' must be a list of counts; it "
            "has a number");
  EXPECT_EQ(shape("{}"), counts + "an object");
  EXPECT_EQ(shape("[1.0]"), counts + "a number that is no 63-bit count");
  EXPECT_EQ(shape("[9223372036854775808]"),
            counts + "a number that is no 63-bit count");
  EXPECT_EQ(shape("[1e3]"), counts + "a number that is no 63-bit count");
  EXPECT_EQ(shape("[[1]]"), counts + "a list");
  EXPECT_EQ(shape("[\"1\"]"), counts + "a string");
  EXPECT_EQ(shape("[-1]"), "tensor 'x' has a negative number: -1");
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_EQ(shape(many + "]"), "tensor 'x' has more than 64 dimensions");
  const std::string two =
      "the data_offsets of tensor 'x' must be a list of two counts; it has ";
  EXPECT_EQ(offsets("{}"), two + "an object");
  EXPECT_EQ(offsets("[null,1]"), two + "null");
  EXPECT_EQ(offsets("[0,-1]"), "tensor 'x' has a negative number: -1");
  EXPECT_EQ(offsets("[0]"), "tensor 'x' needs two data_offsets; it has 1");
  EXPECT_EQ(offsets("[0,1,2]"), "tensor 'x' has more than two data_offsets");
  EXPECT_EQ(offsets("[1,0]"), "tensor 'x' ends before it begins: 1 .. 0");
}

TEST(SafetensorsFile, RefusesTensorsThatDoNotFitTheirBytes) {
  const auto with = [](const std::string& type, const std::string& shape,
                       const std::string& offsets) {
    return refused(R"({"x":{"dtype":")" + type + R"(","shape":)" + shape +
                       R"(,"data_offsets":)" + offsets + "}}",
                   std::string(8, 'x'));
  };
  EXPECT_EQ(with("F32", "[3]", "[0,8]"),
            "tensor 'x' has 8 bytes, but F32 of shape [3] takes 12");
  EXPECT_EQ(with("F64", "[]", "[0,4]"),
            "tensor 'x' has 4 bytes, but F64 of shape [] takes 8");
  EXPECT_EQ(with("U8", "[9]", "[0,9]"),
            "tensor 'x' ends at byte 9 of the data, which has 8; the file may "
            "have been cut off");
  EXPECT_EQ(with("U8", "[4294967296,4294967296]", "[0,0]"),
            "tensor 'x' has a shape that no memory holds: [4294967296, "
            "4294967296]");
  // 2^63 bytes and 8 more would be 8 in 64 bits.
  EXPECT_EQ(with("F64", "[1152921504606846977]", "[0,8]"),
            "tensor 'x' has a shape that no memory holds: "
            "[1152921504606846977]");
}

std::string two_tensors(const std::string& first, const std::string& second) {
  const auto one = [](const std::string& name, const std::string& range) {
    const auto comma = range.find(',');
    const int size = std::stoi(range.substr(comma + 1)) - std::stoi(range);
    return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(size) +
           R"(],"data_offsets":[)" + range + "]}";
  };
  std::string json = "{";
  json += one("x", first);
  json += ',';
  json += one("y", second);
  return json + "}";
}

TEST(SafetensorsFile, RefusesTensorsThatOverlap) {
  const std::string data(8, 'd');
  EXPECT_EQ(refused(two_tensors("0,5", "4,8"), data),
            "tensor 'y' begins at byte 4 of the data, inside another, which "
            "ends at 5");
  EXPECT_THAT(refused(two_tensors("0,8", "0,8"), data),
              EndsWith("begins at byte 0 of the data, inside another, which "
                       "ends at 8"));
  EXPECT_EQ(refused(two_tensors("2,4", "0,8"), data),
            "tensor 'x' begins at byte 2 of the data, inside another, which "
            "ends at 8");
}

TEST(SafetensorsFile, RefusesBytesThatBelongToNoTensor) {
  const std::string data(8, 'd');
  EXPECT_EQ(refused(two_tensors("0,3", "4,8"), data),
            "byte 3 of the data belongs to no tensor; the data has 8");
  EXPECT_EQ(refused(two_tensors("0,3", "3,7"), data),
            "byte 7 of the data belongs to no tensor; the data has 8");
  EXPECT_EQ(refused(two_tensors("1,3", "3,8"), data),
            "byte 0 of the data belongs to no tensor; the data has 8");
  EXPECT_EQ(refused("{}", "d"),
            "byte 0 of the data belongs to no tensor; the data has 1");
  const std::string good = file_of(two_tensors("3,8", "0,3"), data);
  EXPECT_EQ(SafetensorsFile::parse(bytes_of(good)).names().size(), 2u);
}

TEST(SafetensorsFile, RefusesNamesThatComeTwice) {
  const std::string one = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(refused(R"({"x":)" + one + R"(,"x":)" + one + "}"),
            "the header has tensor 'x' twice");
  // The same name, once by an escape.
  EXPECT_EQ(refused(R"({"x":)" + one + R"(,"\u0078":)" + one + "}"),
            "the header has tensor 'x' twice");
  EXPECT_EQ(refused(R"({"__metadata__":{},"__metadata__":{}})"),
            "the header has __metadata__ twice");
  EXPECT_EQ(refused(R"({"__metadata__":{"k":"v","k":"w"}})"),
            "the metadata has 'k' twice");
}

TEST(SafetensorsFile, RefusesMetadataThatIsNotText) {
  EXPECT_EQ(refused(R"({"__metadata__":[]})"),
            "__metadata__ must be an object of strings; it has a list");
  EXPECT_EQ(refused(R"({"__metadata__":{"k":1}})"),
            "the metadata 'k' must be a string; it has a number");
  EXPECT_EQ(refused(R"({"__metadata__":{"k":{}}})"),
            "the metadata 'k' must be a string; it has an object");
}

TEST(SafetensorsFile, IsNotImpressedByDeepNesting) {
  const std::string deep(5'000'000, '[');
  EXPECT_EQ(refused(R"({"x":)" + deep),
            "tensor 'x' must be an object; it is a list");
  EXPECT_EQ(refused(R"({"x":{"shape":)" + deep),
            "the shape of tensor 'x' must be a list of counts; it has a list");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"({"a":)";
  EXPECT_EQ(refused(objects), "tensor 'a' has an unknown field 'a'");
}

TEST(SaveSafetensors, WritesTheBytesThatItsPeerWrites) {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", state_of_peer(),
                   {{"format", "np"}, {"k", "v"}});
  EXPECT_EQ(read_text(folder / "x"), kByPeer);
}

TEST(SaveSafetensors, IsReadBackInEveryType) {
  StateDict state;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                            DType::kFloat16, DType::kInt8, DType::kUInt8,
                            DType::kInt32, DType::kInt64, DType::kBool}) {
    Tensor tensor(dtype, {3, 5});
    for (std::size_t i = 0; i < tensor.byte_count(); ++i) {
      tensor.bytes()[i] = static_cast<std::byte>(i % 2);
    }
    state[std::string(to_string(dtype))] = tensor;
  }
  const TemporaryFolder folder;
  save_safetensors(folder / "x", state);
  const SafetensorsFile file = SafetensorsFile::open(folder / "x");
  EXPECT_THAT(file.metadata(), IsEmpty());
  const StateDict again = file.state_dict();
  ASSERT_EQ(again.size(), state.size());
  for (const auto& [name, tensor] : state) {
    EXPECT_EQ(again.at(name).dtype(), tensor.dtype());
    EXPECT_EQ(again.at(name).shape(), tensor.shape());
    EXPECT_EQ(std::memcmp(again.at(name).bytes(), tensor.bytes(),
                          tensor.byte_count()),
              0);
    // Every tensor is aligned for its type.
    const auto address =
        reinterpret_cast<std::uintptr_t>(file.data(name).data());
    EXPECT_EQ(address % size_of(tensor.dtype()), 0u) << name;
  }
}

TEST(SaveSafetensors, WritesAnEmptyStateDict) {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", {});
  EXPECT_THAT(SafetensorsFile::open(folder / "x").names(), IsEmpty());
}

TEST(SaveSafetensors, EscapesWhatJsonDemands) {
  const std::string name = "quote\" back\\slash \n \xe6\xb3\xa8";
  StateDict state;
  state[name] = Tensor({1}, {1});
  const TemporaryFolder folder;
  save_safetensors(folder / "x", state, {{"a\"b", "c\\d"}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "x");
  EXPECT_THAT(file.names(), ElementsAre(name));
  EXPECT_EQ(file.metadata().at("a\"b"), "c\\d");
}

TEST(SaveSafetensors, RefusesNamesThatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const auto failure = [&folder](const std::string& name,
                                 const std::string& key) {
    StateDict state;
    state[name] = Tensor({1}, {1});
    return text_of<InvalidArgument>([&] {
      save_safetensors(folder / "x", state, {{key, "value"}});
    });
  };
  EXPECT_EQ(failure("__metadata__", "k"),
            "save_safetensors: no tensor may be called __metadata__, which "
            "the format keeps for itself");
  EXPECT_EQ(failure("bad\xff", "k"),
            "save_safetensors: names must be UTF-8; got 'bad\\xff'");
  EXPECT_EQ(failure("x", "bad\xc3"),
            "save_safetensors: names must be UTF-8; got 'bad\\xc3'");
  EXPECT_THAT(folder.files(), IsEmpty());
}

TEST(SaveSafetensors, RefusesAHeaderThatNobodyWouldRead) {
  const TemporaryFolder folder;
  EXPECT_THAT(text_of<InvalidArgument>([&] {
                save_safetensors(folder / "x", {},
                                 {{"k", std::string(100'000'000, 'v')}});
              }),
              StartsWith("save_safetensors: the header may have at most "
                         "100000000 bytes; the names and metadata take "));
  EXPECT_THAT(folder.files(), IsEmpty());
}

TEST(SaveSafetensors, SaysWhyItCannotWrite) {
  const TemporaryFolder folder;
  const std::string path = (folder / "absent/x").string();
  EXPECT_EQ(text_of<IoError>([&] { save_safetensors(path, {}); }),
            "save_safetensors: cannot write '" + path +
                "': No such file or directory");
}

}  // namespace
}  // namespace regard
