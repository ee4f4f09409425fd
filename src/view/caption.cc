// SPDX-License-Identifier: Apache-2.0
#include "regard/view/caption.h"

#include <algorithm>
#include <string>
#include <utility>

#include "regard/pictures/picture.h"
#include "view/transformer_sections.h"

namespace regard::view {
namespace {

// The part that the model sees, in as many pixels as a page needs.
std::string seen_part(const std::filesystem::path& file) {
  constexpr std::int64_t kMost = 448;
  const pictures::Picture all = pictures::read_picture(file);
  const std::int64_t side = std::min({all.width, all.height, kMost});
  return pictures::encode_png(pictures::resize_and_crop(all, side));
}

Axis picture_axis(const tasks::PictureFeatures& features,
                  const std::filesystem::path& file) {
  const std::int64_t across = features.grid();
  Axis axis{"picture", {}, AxisPictures{across, across, {seen_part(file)}}};
  for (std::int64_t row = 1; row <= across; ++row) {
    for (std::int64_t column = 1; column <= across; ++column) {
      axis.tokens.push_back(std::to_string(row) + "," + std::to_string(column));
    }
  }
  return axis;
}

}  // namespace

Trace trace_caption(const tasks::Captioner& captioner,
                    const std::filesystem::path& picture,
                    const tasks::CaptionOptions& options) {
  tasks::CaptionTrace seen = captioner.trace(picture, options);
  Trace trace;
  trace.source = picture.filename().string();
  trace.target = std::move(seen.text);
  const std::size_t source =
      trace.add_axis(picture_axis(captioner.config().pictures, picture));
  const std::size_t target =
      trace.add_axis({"target", std::move(seen.written)});
  const std::size_t read = trace.add_axis({"read", std::move(seen.read)});
  add_sections(trace, {source, target, read}, seen.weights);
  // Where the words of the caption look is what it opens with.
  trace.set_start({.section = std::ssize(trace.sections()) - 1});
  return trace;
}

}  // namespace regard::view
