// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <utility>

// It needs what is above it.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "pictures/formats.h"
#include "regard/core/error.h"

namespace regard::pictures {
namespace {

// libjpeg leaves by longjmp, which runs no destructor: nothing that has one
// lives in a function that calls it.
struct Reader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX] = {};
  int orientation = 1;

  ~Reader() { jpeg_destroy_decompress(&info); }
};

[[noreturn]] void fail(j_common_ptr info) {
  auto* const reader = static_cast<Reader*>(info->client_data);
  info->err->format_message(info, reader->message);
  std::longjmp(reader->leave, 1);
}

// What is cut off is an error here; other oddities are not.
void warn(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) {
    fail(info);
  }
}

// A small file may have thousands of scans, each a pass over all pixels.
void watch(j_common_ptr info) {
  constexpr int kMostScans = 500;
  auto* const decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= kMostScans) return;
  auto* const reader = static_cast<Reader*>(info->client_data);
  std::strcpy(reader->message, "it has more than 500 scans");
  std::longjmp(reader->leave, 1);
}

bool read_header(Reader& r, Bytes bytes) {
  jpeg_decompress_struct& info = r.info;
  info.err = jpeg_std_error(&r.errors);
  r.errors.error_exit = fail;
  r.errors.emit_message = warn;
  info.client_data = &r;
  if (setjmp(r.leave) != 0) return false;
  jpeg_create_decompress(&info);
  r.progress.progress_monitor = watch;
  info.progress = &r.progress;
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_save_markers(&info, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&info, TRUE);
  for (auto* m = info.marker_list; m != nullptr; m = m->next) {
    constexpr std::size_t kStart = 6;  // "Exif\0\0"
    if (m->data_length < kStart || std::memcmp(m->data, "Exif\0", 6) != 0) {
      continue;
    }
    r.orientation =
        exif_orientation({reinterpret_cast<const std::byte*>(m->data) + kStart,
                          m->data_length - kStart});
    break;
  }
  const bool four =
      info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  return true;
}

// row [width, 4] is for CMYK.
bool read_pixels(Reader& r, std::uint8_t* rgb, std::uint8_t* row) {
  jpeg_decompress_struct& info = r.info;
  if (setjmp(r.leave) != 0) return false;
  jpeg_start_decompress(&info);
  const std::size_t width = info.output_width;
  while (info.output_scanline < info.output_height) {
    std::uint8_t* const to = rgb + 3 * width * info.output_scanline;
    JSAMPROW line = info.out_color_space == JCS_RGB ? to : row;
    jpeg_read_scanlines(&info, &line, 1);
    if (info.out_color_space == JCS_RGB) continue;
    for (std::size_t x = 0; x < width; ++x) {
      // Inks come inverted, as Adobe writes them; where its marker is missing,
      // Pillow takes them so, too.
      const int light = row[4 * x + 3];
      for (std::size_t c = 0; c < 3; ++c) {
        to[3 * x + c] = static_cast<std::uint8_t>(
            light - divided_by_255((255 - row[4 * x + c]) * light));
      }
    }
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

bool jpeg_available() { return true; }

Picture decode_jpeg(Bytes bytes, const std::string& name) {
  Reader reader;
  Picture picture;
  bool read = read_header(reader, bytes);
  if (read) {
    picture =
        sized_picture(reader.info.image_width, reader.info.image_height, name);
    std::vector<std::uint8_t> row(4 * static_cast<std::size_t>(picture.width));
    read = read_pixels(reader, picture.rgb.data(), row.data());
  }
  if (!read) {
    throw_parse_error("read_picture", "'", name,
                      "' is a damaged JPEG file: ", reader.message);
  }
  return upright(std::move(picture), reader.orientation);
}

}  // namespace regard::pictures
