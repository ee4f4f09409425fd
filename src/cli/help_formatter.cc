// SPDX-License-Identifier: Apache-2.0
#include "cli/help_formatter.h"

#include <utility>

#include "cli/text.h"

namespace regard::cli {

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  // CLI11 puts two empty lines between groups.
  return CLI::detail::find_and_replace(
      Formatter::make_help(app, std::move(name), mode), "\n\n\n", "\n\n");
}

std::string HelpFormatter::make_option(const CLI::Option* option,
                                       bool is_positional) const {
  const std::string name =
      "  " + make_option_name(option, is_positional) + make_option_opts(option);
  const std::string description = make_option_desc(option);
  const int left = static_cast<int>(get_column_width());
  const std::string text = wrapped(description, left, 80);
  // The first line of the description stands beside the name where it fits.
  if (cells_of(name) + 2 > left) return name + "\n" + text;
  return fitted(name, left) + text.substr(get_column_width());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return app->get_description() + "\n\n";
}

}  // namespace regard::cli
