// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace regard::cli {

// What pictures may be drawn with, poorest first.
enum class Ink {
  kAscii,      // shades of punctuation
  kBlocks,     // shades of Unicode blocks
  kColors256,  // the palette that every colour terminal has
  kTrueColor,  // 24 bits
};

enum class ColorWhen { kAuto, kAlways, kNever };

struct Screen {
  Ink ink = Ink::kAscii;
  int columns = 80;
  bool utf8 = true;  // may show what is not ASCII

  bool has_color() const { return ink >= Ink::kColors256; }
};

// What standard output is: a terminal of which width and colours, or a file.
// Colour goes to terminals only, unless asked for; NO_COLOR and TERM=dumb
// forbid it, COLORTERM tells of 24 bits and TERM of 256 colours, COLUMNS gives
// the width of what is no terminal.
Screen standard_output(ColorWhen when);

// Writes to standard output. Throws IoError if it cannot be written.
void print(const std::string& text);

// What a model wrote or a file has, which may be any bytes: for a terminal,
// control characters, which would move the cursor or set its title, become '?'.
// Line ends and tabs stay.
std::string for_output(std::string_view text);
// Prints that.
void print_written(std::string_view text);

}  // namespace regard::cli
