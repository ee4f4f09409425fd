// SPDX-License-Identifier: Apache-2.0
#include "cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/text.h"
#include "regard/core/error.h"

namespace regard::cli {
namespace {

// An unset variable is an empty one.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first that is set decides, as in POSIX.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string locale = environment(name);
    if (locale.empty()) continue;
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return locale.find("utf-8") != std::string::npos ||
           locale.find("utf8") != std::string::npos;
  }
  return false;
}

int columns_of_stdout() {
  constexpr int kNarrowest = 20;
  constexpr int kWidest = 1000;
  int columns = 0;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  if (columns == 0) columns = std::atoi(environment("COLUMNS").c_str());
  return columns <= 0 ? 80 : std::clamp(columns, kNarrowest, kWidest);
}

bool has_24_bits() {
  const std::string depth = environment("COLORTERM");
  return depth == "truecolor" || depth == "24bit";
}

bool wants_color(ColorWhen when) {
  if (when != ColorWhen::kAuto) return when == ColorWhen::kAlways;
  const std::string terminal = environment("TERM");
  return isatty(STDOUT_FILENO) == 1 && environment("NO_COLOR").empty() &&
         terminal != "dumb" &&
         (has_24_bits() || terminal.find("256color") != std::string::npos);
}

}  // namespace

Screen standard_output(ColorWhen when) {
  Screen screen;
  screen.columns = columns_of_stdout();
  screen.utf8 = locale_is_utf8();
  if (wants_color(when)) {
    screen.ink = has_24_bits() ? Ink::kTrueColor : Ink::kColors256;
  } else {
    screen.ink = screen.utf8 ? Ink::kBlocks : Ink::kAscii;
  }
  return screen;
}

void print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0;
  if (!written) {
    throw_io_error("standard output", std::strerror(errno));
  }
}

std::string for_output(std::string_view text) {
  if (isatty(STDOUT_FILENO) != 1) return std::string(text);
  std::string shown;
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t control =
        c == '\n' || c == '\t' ? 0 : control_bytes(text);
    shown += control > 0 ? '?' : c;
    text.remove_prefix(std::max<std::size_t>(control, 1));
  }
  return shown;
}

void print_written(std::string_view text) {
  if (!text.empty()) print(for_output(text));
}

}  // namespace regard::cli
