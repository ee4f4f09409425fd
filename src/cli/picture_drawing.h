// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/screen.h"
#include "regard/pictures/picture.h"

namespace regard::cli {

// A picture as text, one line after the other without line ends: with colours
// by half blocks, so that a character is two pixels; else by shades, a
// character for two pixels one above the other, so that shapes stay as they
// are.
std::vector<std::string> draw_picture(const pictures::Picture& picture,
                                      const Screen& screen);

// The picture in the light of `weights`, [grid x grid]: as it is where the
// largest one is, darker by how much less the others weigh.
pictures::Picture lit(const pictures::Picture& picture,
                      const std::vector<float>& weights);

// Drawings side by side, as many as the screen is wide, each under its title.
struct TitledDrawing {
  std::string title;
  std::vector<std::string> lines;
};
std::string side_by_side(const std::vector<TitledDrawing>& drawings, int width,
                         const Screen& screen);

}  // namespace regard::cli
