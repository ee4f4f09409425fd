// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "pictures/formats.h"
#include "regard/core/error.h"

namespace regard::pictures {
namespace {

// What libpng says of an error, which it would print otherwise.
struct Message {
  char text[128] = {};
};

// libpng leaves by longjmp, which runs no destructor: nothing that has one
// lives in a function that calls it.
[[noreturn]] void fail(png_structp png, png_const_charp text) {
  auto* const message = static_cast<Message*>(png_get_error_ptr(png));
  std::strncpy(message->text, text, sizeof(message->text) - 1);
  png_longjmp(png, 1);
}
void ignore(png_structp, png_const_charp) {}

constexpr png_uint_32 kMostSide = 0x7FFFFFFF;

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const std::byte* next = nullptr;
  std::size_t left = 0;
  Message message;
  std::int64_t width = 0, height = 0;
  int orientation = 1;

  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void take(png_structp png, png_bytep to, std::size_t count) {
  auto* const reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (count > reader->left) png_error(png, "it is cut off");
  std::memcpy(to, reader->next, count);
  reader->next += count;
  reader->left -= count;
}

bool read_header(Reader& r) {
  r.png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &r.message, fail, ignore);
  if (r.png == nullptr) return false;
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  r.info = png_create_info_struct(r.png);
  constexpr png_alloc_size_t kMostChunk = 8 << 20;
  png_set_user_limits(r.png, kMostSide, kMostSide);
  png_set_chunk_malloc_max(r.png, kMostChunk);
  png_set_read_fn(r.png, &r, take);
  png_read_info(r.png, r.info);
  r.width = png_get_image_width(r.png, r.info);
  r.height = png_get_image_height(r.png, r.info);
  return true;
}

void note_orientation(Reader& r) {
  png_bytep exif = nullptr;
  png_uint_32 size = 0;
  if (png_get_eXIf_1(r.png, r.info, &size, &exif) == 0) return;
  r.orientation =
      exif_orientation({reinterpret_cast<const std::byte*>(exif), size});
}

// rows [height] of [width, 4].
bool read_pixels(Reader& r, png_bytepp rows) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_set_expand(r.png);
  png_set_strip_16(r.png);
  png_set_gray_to_rgb(r.png);
  png_set_add_alpha(r.png, 0xFF, PNG_FILLER_AFTER);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  png_read_image(r.png, rows);
  png_read_end(r.png, r.info);
  note_orientation(r);
  return true;
}

struct Writer {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string* out = nullptr;
  Message message;

  ~Writer() { png_destroy_write_struct(&png, &info); }
};

void put(png_structp png, png_bytep bytes, std::size_t count) {
  static_cast<Writer*>(png_get_io_ptr(png))
      ->out->append(reinterpret_cast<const char*>(bytes), count);
}
void flush(png_structp) {}

bool write_all(Writer& w, const Picture& picture) {
  w.png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, &w.message, fail, ignore);
  if (w.png == nullptr) return false;
  if (setjmp(png_jmpbuf(w.png)) != 0) return false;
  w.info = png_create_info_struct(w.png);
  png_set_user_limits(w.png, kMostSide, kMostSide);
  png_set_write_fn(w.png, &w, put, flush);
  png_set_IHDR(w.png, w.info, static_cast<png_uint_32>(picture.width),
               static_cast<png_uint_32>(picture.height), 8, PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(w.png, w.info);
  for (std::int64_t y = 0; y < picture.height; ++y) {
    png_write_row(w.png, picture.at(y, 0));
  }
  png_write_end(w.png, w.info);
  return true;
}

}  // namespace

bool png_available() { return true; }

Picture decode_png(Bytes bytes, const std::string& name) {
  Reader reader;
  reader.next = bytes.data();
  reader.left = bytes.size();
  Picture picture;
  bool read = read_header(reader);
  if (read) {
    picture = sized_picture(reader.width, reader.height, name);
    std::vector<std::uint8_t> rgba(
        static_cast<std::size_t>(4 * picture.width * picture.height));
    std::vector<png_bytep> rows;
    for (std::int64_t y = 0; y < picture.height; ++y) {
      rows.push_back(rgba.data() + 4 * picture.width * y);
    }
    read = read_pixels(reader, rows.data());
    if (read) {
      lay_on_white(rgba.data(), picture.width * picture.height,
                   picture.rgb.data());
    }
  }
  if (!read) {
    throw_parse_error("read_picture", "'", name,
                      "' is a damaged PNG file: ", reader.message.text);
  }
  return upright(std::move(picture), reader.orientation);
}

std::string write_png(const Picture& picture) {
  std::string out;
  Writer writer;
  writer.out = &out;
  if (!write_all(writer, picture)) {
    throw_io_error("encode_png", "libpng could not write a picture of ",
                   picture.width, " x ", picture.height, ": ",
                   writer.message.text);
  }
  return out;
}

}  // namespace regard::pictures
