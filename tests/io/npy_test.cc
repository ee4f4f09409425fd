// SPDX-License-Identifier: Apache-2.0
#include "regard/io/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
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
using ::testing::StartsWith;

// A file of any version around a header's text and data.
std::string npy(int version, const std::string& header,
                const std::string& data) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    file += static_cast<char>((header.size() >> (8 * i)) & 255);
  }
  return file + header + data;
}

std::string header(const std::string& descr, const std::string& order,
                   const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + order +
         ", 'shape': " + shape + ", }\n";
}

std::string refusal(const std::string& file) {
  return text_of<ParseError>([&file] { parse_npy(bytes_of(file)); });
}

std::string refused_header(const std::string& text) {
  return refusal(npy(1, text, ""));
}

// Written by NumPy 2.4.6: np.array([[1.5, -2, 3], [4, 5, -6.5]], '<f4').
const std::string kRows = raw<float>({1.5f, -2.0f, 3.0f, 4.0f, 5.0f, -6.5f});
const std::string kByNumpy =
    npy(1,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" +
            std::string(58, ' ') + "\n",
        kRows);

TEST(LoadNpy, ReadsWhatNumpyWrites) {
  ASSERT_EQ(kByNumpy.size(), 152u);
  const TemporaryFolder folder;
  write_text(folder / "x.npy", kByNumpy);
  const Tensor tensor = load_npy(folder / "x.npy");
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
  EXPECT_THAT(tensor.values<float>(),
              ElementsAre(1.5f, -2.0f, 3.0f, 4.0f, 5.0f, -6.5f));
}

TEST(LoadNpy, ReadsEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const std::string file =
        npy(version, header("'<i4'", "False", "(2,)"), raw<int>({7, -8}));
    EXPECT_THAT(parse_npy(bytes_of(file)).values<std::int32_t>(),
                ElementsAre(7, -8));
  }
}

template <typename T>
std::vector<T> loaded(const std::string& descr, const std::string& data) {
  std::string shape = "(";
  shape += std::to_string(data.size() / sizeof(T));
  shape += ",)";
  const Tensor tensor =
      parse_npy(bytes_of(npy(1, header(descr, "False", shape), data)));
  const auto values = tensor.values<T>();
  return {values.begin(), values.end()};
}

TEST(LoadNpy, ReadsEveryType) {
  EXPECT_THAT(loaded<float>("'<f4'", raw<float>({0.5f})), ElementsAre(0.5f));
  EXPECT_THAT(loaded<double>("'<f8'", raw<double>({0.1})), ElementsAre(0.1));
  EXPECT_THAT(loaded<std::int8_t>("'|i1'", "\xff"), ElementsAre(-1));
  EXPECT_THAT(loaded<std::uint8_t>("'|u1'", "\xff"), ElementsAre(255));
  EXPECT_THAT(loaded<std::int32_t>("'<i4'", raw<int>({-2})), ElementsAre(-2));
  EXPECT_THAT(loaded<std::int64_t>("'<i8'", raw<std::int64_t>({-3})),
              ElementsAre(-3));
  EXPECT_THAT(loaded<bool>("'|b1'", std::string("\1\0", 2)),
              ElementsAre(true, false));
  EXPECT_EQ(loaded<Float16>("'<f2'", raw<std::uint16_t>({0x3c00}))[0].bits,
            0x3c00);
}

// np.load of NumPy 2.4.6 takes each of these; cnpy writes '<' before one byte.
TEST(LoadNpy, ReadsEverySpellingOfAType) {
  for (const char* descr : {"'<u1'", "'>u1'", "'=u1'", "'u1'"}) {
    EXPECT_THAT(loaded<std::uint8_t>(descr, "\xff"), ElementsAre(255)) << descr;
  }
  for (const char* descr : {"'=f4'", "'f4'", "'|f4'"}) {
    EXPECT_THAT(loaded<float>(descr, raw<float>({0.5f})), ElementsAre(0.5f))
        << descr;
  }
  EXPECT_THAT(loaded<std::int8_t>("'<i1'", "\xff"), ElementsAre(-1));
  EXPECT_THAT(loaded<bool>("'<b1'", "\1"), ElementsAre(true));
}

TEST(LoadNpy, PutsFortranOrderIntoCOrder) {
  // Written by NumPy 2.4.6 from np.asfortranarray of the rows above.
  const std::string columns =
      raw<float>({1.5f, 4.0f, -2.0f, 5.0f, 3.0f, -6.5f});
  const Tensor tensor =
      parse_npy(bytes_of(npy(1, header("'<f4'", "True", "(2, 3)"), columns)));
  EXPECT_THAT(tensor.values<float>(),
              ElementsAre(1.5f, -2.0f, 3.0f, 4.0f, 5.0f, -6.5f));
}

TEST(LoadNpy, PutsFortranOrderOfThreeDimensionsIntoCOrder) {
  // The element [i, j, k] holds 100 i + 10 j + k.
  std::string data;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) data += raw<int>({100 * i + 10 * j + k});
    }
  }
  const Tensor tensor =
      parse_npy(bytes_of(npy(1, header("'<i4'", "True", "(2, 3, 4)"), data)));
  const auto view = tensor.view<std::int32_t, 3>();
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(view(i, j, k), 100 * i + 10 * j + k);
      }
    }
  }
}

TEST(LoadNpy, ReadsScalarsRowsAndEmptyArraysInEitherOrder) {
  for (const char* order : {"True", "False"}) {
    const auto shape_of = [order](const std::string& shape,
                                  const std::string& data) {
      return parse_npy(bytes_of(npy(1, header("'|u1'", order, shape), data)))
          .shape();
    };
    EXPECT_EQ(shape_of("()", "a"), Shape{});
    EXPECT_EQ(shape_of("(3,)", "abc"), Shape{3});
    EXPECT_EQ(shape_of("(0,)", ""), Shape{0});
    EXPECT_EQ(shape_of("(2, 0, 3)", ""), (Shape{2, 0, 3}));
    EXPECT_EQ(shape_of("(1, 3)", "abc"), (Shape{1, 3}));
  }
}

TEST(LoadNpy, ReadsOtherSpellingsOfTheHeader) {
  const std::string spelled =
      "{\"shape\":(2L,1),'fortran_order':False,\n\t'descr':'|u1'}  \n";
  EXPECT_EQ(parse_npy(bytes_of(npy(1, spelled, "ab"))).shape(), (Shape{2, 1}));
}

TEST(LoadNpy, RefusesWhatIsNoNpyFile) {
  const std::string rule =
      "parse_npy: a .npy file begins with the bytes \\x93NUMPY; this begins "
      "with ";
  EXPECT_EQ(refusal(""), rule + "''");
  EXPECT_EQ(refusal("PK\x03\x04 zipped"), rule + "'PK\\x03\\x04 z'");
  EXPECT_EQ(refusal("\x93NUM"), rule + "'\\x93NUM'");
}

TEST(LoadNpy, RefusesAFileThatWasCutOffAnywhere) {
  for (std::size_t size = 0; size < kByNumpy.size(); ++size) {
    EXPECT_THAT(refusal(kByNumpy.substr(0, size)), StartsWith("parse_npy: "))
        << size;
  }
  const std::string inside = "parse_npy: the file ends inside its header";
  EXPECT_EQ(refusal(kByNumpy.substr(0, 7)), inside);
  EXPECT_EQ(refusal(kByNumpy.substr(0, 9)), inside);
  EXPECT_EQ(refusal(kByNumpy.substr(0, 100)), inside);
  EXPECT_EQ(refusal(kByNumpy.substr(0, 151)),
            "parse_npy: float32 of shape [2, 3] takes 24 bytes, but 23 follow "
            "the header; the file may have been cut off");
}

TEST(LoadNpy, RefusesBytesAfterTheData) {
  EXPECT_EQ(refusal(kByNumpy + "x"),
            "parse_npy: float32 of shape [2, 3] takes 24 bytes, but 25 follow "
            "the header");
}

TEST(LoadNpy, RefusesUnknownVersions) {
  EXPECT_EQ(refusal(npy(4, "", "")),
            "parse_npy: the format version is 4.0; known are 1.0, 2.0 and 3.0");
  std::string file = kByNumpy;
  file[7] = 9;
  EXPECT_EQ(refusal(file),
            "parse_npy: the format version is 1.9; known are 1.0, 2.0 and 3.0");
}

TEST(LoadNpy, RefusesAGiantHeader) {
  std::string file = npy(2, "", "");
  file.replace(8, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(refusal(file),
            "parse_npy: the header may have at most 65535 bytes; this says "
            "4294967295");
}

TEST(LoadNpy, RefusesOtherTypesByName) {
  const auto with = [](const std::string& descr) {
    return refused_header(header(descr, "False", "(1,)"));
  };
  EXPECT_EQ(with("'>f4'"),
            "parse_npy: the elements are big-endian ('>f4'); only "
            "little-endian ones are read");
  const std::string known =
      "; known are <f2, <f4, <f8, |i1, |u1, <i4, <i8, |b1";
  EXPECT_EQ(with("'<c8'"),
            "parse_npy: the elements have the type '<c8'" + known);
  EXPECT_EQ(with("'|O'"), "parse_npy: the elements have the type '|O'" + known);
  EXPECT_EQ(with("[('a', '<f4'), ('b', '<i4')]"),
            "parse_npy: the elements are records; only plain numbers are read");
}

TEST(LoadNpy, RefusesABrokenHeaderAndSaysWhere) {
  const std::string at = "parse_npy: the header is broken at character ";
  EXPECT_EQ(refused_header(""), at + "0: expected '{'");
  EXPECT_EQ(refused_header("{"), at + "1: expected a string");
  EXPECT_EQ(refused_header("{'descr"), at + "2: a string without an end");
  EXPECT_EQ(refused_header("{'descr' '<f4'}"), at + "9: expected ':'");
  EXPECT_EQ(refused_header("{'other': 1}"), at + "9: unknown key 'other'");
  EXPECT_EQ(refused_header("{'descr': '<f4' 'shape': ()}"),
            at + "16: expected ','");
  EXPECT_EQ(refused_header("{'descr': '<f4', 'descr': '<f4'}"),
            at + "25: 'descr' comes twice");
  EXPECT_EQ(refused_header("{'shape': (), 'shape': ()}"),
            at + "22: 'shape' comes twice");
  EXPECT_EQ(refused_header("{'fortran_order': True, 'fortran_order': True}"),
            at + "40: 'fortran_order' comes twice");
  EXPECT_EQ(refused_header("{'fortran_order': 1}"),
            at + "18: expected True or False");
  EXPECT_EQ(refused_header(header("'<f4'", "False", "()") + "x"),
            at + "56: text after the dictionary");
  EXPECT_EQ(refused_header("{}"), at + "2: no 'descr'");
  EXPECT_EQ(refused_header("{'descr': '<f4'}"), at + "16: no 'fortran_order'");
  EXPECT_EQ(refused_header("{'descr': '<f4', 'fortran_order': True}"),
            at + "39: no 'shape'");
}

TEST(LoadNpy, RefusesABrokenShapeAndSaysWhere) {
  const std::string at = "parse_npy: the header is broken at character ";
  const auto with = [](const std::string& shape) {
    return refused_header("{'shape': " + shape + "}");
  };
  EXPECT_EQ(with("3"), at + "10: expected '('");
  EXPECT_EQ(with("(3)"), at + "13: expected ',' in a tuple of one");
  EXPECT_EQ(with("(,)"), at + "11: expected a count");
  EXPECT_EQ(with("(-3,)"), at + "11: expected a count");
  EXPECT_EQ(with("(2 3)"), at + "13: expected ',' or ')'");
  EXPECT_EQ(with("((2,),)"), at + "11: expected a count");
  EXPECT_EQ(with("(9223372036854775808,)"),
            at + "29: a number that is too large");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  EXPECT_EQ(with(many + ")"), at + "139: more than 64 dimensions");
  EXPECT_EQ(with("(" + std::string(60000, '(')), at + "11: expected a count");
}

TEST(LoadNpy, RefusesAShapeThatNoMemoryHolds) {
  EXPECT_EQ(
      refused_header(header("'|u1'", "False", "(4294967296, 4294967296)")),
      "parse_npy: no memory holds the shape [4294967296, 4294967296]");
  // Far more than the file has, though it could be counted.
  EXPECT_EQ(refused_header(header("'<f8'", "False", "(1000000000000,)")),
            "parse_npy: float64 of shape [1000000000000] takes 8000000000000 "
            "bytes, but 0 follow the header; the file may have been cut off");
}

TEST(LoadNpy, RefusesABoolThatIsNeitherTrueNorFalse) {
  EXPECT_EQ(refusal(npy(1, header("'|b1'", "False", "(3,)"),
                        std::string("\1\0\2", 3))),
            "parse_npy: element 2 is neither false (0) nor true (1): 2");
}

TEST(LoadNpy, NamesTheFileThatIsBrokenOrAbsent) {
  const TemporaryFolder folder;
  write_text(folder / "x.npy", "nothing");
  const std::string path = (folder / "x.npy").string();
  EXPECT_THAT(text_of<ParseError>([&] { load_npy(path); }),
              StartsWith("load_npy: '" + path + "': a .npy file begins"));
  EXPECT_EQ(text_of<IoError>([&] { load_npy(path + "z"); }),
            "load_npy: cannot read '" + path + "z': No such file or directory");
}

TEST(SaveNpy, WritesTheBytesThatNumpyWrites) {
  const TemporaryFolder folder;
  save_npy(folder / "x.npy",
           Tensor({1.5f, -2.0f, 3.0f, 4.0f, 5.0f, -6.5f}, {2, 3}));
  EXPECT_EQ(read_text(folder / "x.npy"), kByNumpy);
}

// Text of the header by NumPy 2.4.6 for each.
TEST(SaveNpy, WritesTheHeaderThatNumpyWrites) {
  const TemporaryFolder folder;
  const auto written = [&folder](DType dtype, const Shape& shape) {
    save_npy(folder / "x.npy", Tensor(dtype, shape));
    const std::string file = read_text(folder / "x.npy");
    EXPECT_EQ(file[file.find('\n')], '\n');
    EXPECT_EQ((file.find('\n') + 1) % 64, 0u);
    return file.substr(10, file.find('}') - 9);
  };
  EXPECT_EQ(written(DType::kInt32, {}),
            "{'descr': '<i4', 'fortran_order': False, 'shape': (), }");
  EXPECT_EQ(written(DType::kInt8, {2}),
            "{'descr': '|i1', 'fortran_order': False, 'shape': (2,), }");
  EXPECT_EQ(written(DType::kBool, {0, 4}),
            "{'descr': '|b1', 'fortran_order': False, 'shape': (0, 4), }");
}

TEST(SaveNpy, IsReadBackInEveryType) {
  const TemporaryFolder folder;
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kInt8,
        DType::kUInt8, DType::kInt32, DType::kInt64, DType::kBool}) {
    Tensor tensor(dtype, {3, 5});
    for (std::size_t i = 0; i < tensor.byte_count(); ++i) {
      tensor.bytes()[i] = static_cast<std::byte>(i % 2);
    }
    save_npy(folder / "x.npy", tensor);
    const Tensor again = load_npy(folder / "x.npy");
    EXPECT_EQ(again.dtype(), dtype);
    EXPECT_EQ(again.shape(), tensor.shape());
    EXPECT_EQ(std::memcmp(again.bytes(), tensor.bytes(), tensor.byte_count()),
              0);
  }
}

TEST(SaveNpy, RefusesWhatNumpyDoesNotHave) {
  const TemporaryFolder folder;
  const auto failure = [&folder](const Tensor& tensor) {
    return text_of<InvalidArgument>(
        [&] { save_npy(folder / "x.npy", tensor); });
  };
  EXPECT_EQ(failure(Tensor(DType::kBFloat16, {2})),
            "save_npy: NumPy has no bfloat16; convert it to float32, or write "
            "safetensors");
  EXPECT_EQ(failure(Tensor(Shape(65, 1))),
            "save_npy: the rank may be at most 64; it is 65");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.npy"));
}

TEST(SaveNpy, SaysWhyItCannotWrite) {
  const TemporaryFolder folder;
  const std::string path = (folder / "absent/x.npy").string();
  EXPECT_EQ(text_of<IoError>([&] { save_npy(path, Tensor({1}, {1})); }),
            "save_npy: cannot write '" + path + "': No such file or directory");
}

}  // namespace
}  // namespace regard
