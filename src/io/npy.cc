// SPDX-License-Identifier: Apache-2.0
#include "regard/io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "io/npy_header.h"
#include "io/quote.h"
#include "regard/core/error.h"

namespace regard {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the bytes of the files are used as they are");

constexpr std::string_view kMagic = "\x93NUMPY";

// Where the parts of a file lie.
struct Layout {
  std::string_view header;
  std::span<const std::byte> data;
};

Layout layout_of(std::span<const std::byte> bytes, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  if (!text.starts_with(kMagic)) {
    throw_parse_error(where.c_str(),
                      "a .npy file begins with the bytes \\x93NUMPY; this "
                      "begins with ",
                      io::in_quotes(text.substr(0, kMagic.size())));
  }
  const char* cut_off = "the file ends inside its header";
  if (bytes.size() < kMagic.size() + 2) {
    throw_parse_error(where.c_str(), cut_off);
  }
  const int major = std::to_integer<int>(bytes[6]);
  const int minor = std::to_integer<int>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw_parse_error(where.c_str(), "the format version is ", major, ".",
                      minor, "; known are 1.0, 2.0 and 3.0");
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t start = kMagic.size() + 2 + length_bytes;
  if (bytes.size() < start) throw_parse_error(where.c_str(), cut_off);
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kMagic.size() + 2, length_bytes);
  if (length > io::kLongestNpyHeader) {
    throw_parse_error(where.c_str(), "the header may have at most ",
                      io::kLongestNpyHeader, " bytes; this says ", length);
  }
  if (length > bytes.size() - start) throw_parse_error(where.c_str(), cut_off);
  return {text.substr(start, length), bytes.subspan(start + length)};
}

// The first index is the fastest in the source, the last in the result.
void copy_from_fortran(std::span<const std::byte> source, Tensor& result) {
  const std::size_t size = size_of(result.dtype());
  const Shape& shape = result.shape();
  const std::size_t rank = shape.size();
  Shape strides(rank);
  Shape index(rank, 0);
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  std::int64_t from = 0;
  std::byte* out = result.bytes();
  for (std::int64_t n = 0; n < result.size(); ++n, out += size) {
    std::memcpy(out, source.data() + static_cast<std::size_t>(from) * size,
                size);
    for (std::size_t i = rank; i-- > 0;) {
      from += strides[i];
      if (++index[i] < shape[i]) break;
      from -= strides[i] * shape[i];
      index[i] = 0;
    }
  }
}

void check_bools(const Tensor& tensor, const std::string& where) {
  const std::span<const std::byte> bytes(tensor.bytes(), tensor.byte_count());
  const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return;
  throw_parse_error(
      where.c_str(), "element ", bad - bytes.begin(),
      " is neither false (0) nor true (1): ", static_cast<int>(*bad));
}

Tensor parse(std::span<const std::byte> bytes, const std::string& where) {
  const Layout layout = layout_of(bytes, where);
  io::NpyHeader header = io::parse_npy_header(layout.header, where);
  // The parser has made sure that this cannot overflow.
  const auto needed = static_cast<std::size_t>(element_count(header.shape)) *
                      size_of(header.dtype);
  if (layout.data.size() != needed) {
    throw_parse_error(
        where.c_str(), to_string(header.dtype), " of shape ",
        to_string(header.shape), " takes ", needed, " bytes, but ",
        layout.data.size(), " follow the header",
        layout.data.size() < needed ? "; the file may have been cut off" : "");
  }
  Tensor tensor(header.dtype, std::move(header.shape));
  if (header.fortran_order && tensor.rank() > 1) {
    copy_from_fortran(layout.data, tensor);
  } else if (needed > 0) {
    std::memcpy(tensor.bytes(), layout.data.data(), needed);
  }
  if (tensor.dtype() == DType::kBool) check_bools(tensor, where);
  return tensor;
}

}  // namespace

Tensor load_npy(const std::filesystem::path& path) {
  const io::MappedFile file(path, "load_npy");
  return parse(file.bytes(), "load_npy: '" + path.string() + "'");
}

Tensor parse_npy(std::span<const std::byte> bytes) {
  return parse(bytes, "parse_npy");
}

void save_npy(const std::filesystem::path& path, const Tensor& tensor) {
  require(tensor.dtype() != DType::kBFloat16, "save_npy",
          "NumPy has no bfloat16; convert it to float32, or write safetensors");
  require(tensor.rank() <= io::kMostNpyDimensions, "save_npy",
          "the rank may be at most ", io::kMostNpyDimensions, "; it is ",
          tensor.rank());
  io::AtomicFile file(path, "save_npy");
  file.write(io::npy_start(tensor.dtype(), tensor.shape()));
  file.write({tensor.bytes(), tensor.byte_count()});
  file.commit();
}

}  // namespace regard
