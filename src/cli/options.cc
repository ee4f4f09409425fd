// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <type_traits>

#include "cli/checks.h"
#include "cli/suggestion.h"
#include "cli/text.h"
#include "cli/usage_error.h"

namespace regard::cli {
namespace {

// CLI11's help, with lines that fit a terminal of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(24); }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    // CLI11 puts two empty lines between groups.
    return CLI::detail::find_and_replace(
        Formatter::make_help(app, std::move(name), mode), "\n\n\n", "\n\n");
  }

  std::string make_option(const CLI::Option* option,
                          bool is_positional) const override {
    std::string name = "  " + make_option_name(option, is_positional) +
                       make_option_opts(option);
    // The error names both options; a list of them all is longer than a line.
    for (const char* list : {" Needs:", " Excludes:"}) {
      name.resize(std::min(name.find(list), name.size()));
    }
    const int left = static_cast<int>(get_column_width());
    const std::string text = wrapped(make_option_desc(option), left, 80);
    // The first line of the description stands beside the name where it fits.
    if (cells_of(name) + 2 > left) return name + "\n" + text;
    return fitted(name, left) + text.substr(get_column_width());
  }

  std::string make_description(const CLI::App* app) const override {
    return app->get_description() + "\n\n";
  }
};

template <typename T>
T number_from(const std::string& text) {
  const std::optional<T> value = number_in<T>(text);
  if constexpr (std::is_floating_point_v<T>) {
    if (value && std::isfinite(*value)) return *value;
    throw UsageError(fmt::format("must be a finite number; got '{}'", text));
  } else {
    if (value) return *value;
    using Limits = std::numeric_limits<T>;
    throw UsageError(
        fmt::format("must be a whole number from {} to {}; got '{}'",
                    Limits::min(), Limits::max(), text));
  }
}

template <typename T>
constexpr const char* kTypeName = std::is_floating_point_v<T> ? "FLOAT"
                                  : std::is_signed_v<T>       ? "INT"
                                                              : "UINT";

// CLI11 takes "++" for the end of a command and "[a,b]" for two values. No
// argument holds a '\0': one in front keeps such a word what it is.
constexpr char kMark = '\0';

// main's arguments as CLI11 takes them: the last one first.
std::vector<std::string> marked_words(int argc, const char* const* argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i > 0; --i) {
    std::string word = argv[i];
    const bool list = word.starts_with('[') && word.ends_with(']');
    if (list || word == "++") word.insert(word.begin(), kMark);
    words.push_back(std::move(word));
  }
  return words;
}

std::string without_mark(const std::string& word) {
  return word.starts_with(kMark) ? word.substr(1) : word;
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

}  // namespace

Option* Option::type_name(const std::string& name) {
  named_ = true;
  option_->type_name(name);
  return this;
}

Option* Option::group(const std::string& title) {
  option_->group(title);
  return this;
}

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::excludes(const std::string& other) {
  option_->excludes(other);
  return this;
}

Option* Option::needs(const std::string& other) {
  option_->needs(other);
  return this;
}

Option* Option::check(const Rule& rule) {
  if (!named_) option_->type_name(rule.shown);
  return check(rule.check);
}

Option* Option::check(Check check) {
  checks_.push_back(std::move(check));
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::may_be_empty() {
  may_be_empty_ = true;
  return this;
}

void Option::accept(const std::string& text) const {
  if (text.empty() && !may_be_empty_ && !option_->get_positional()) {
    throw UsageError("the value is empty");
  }
  for (const Check& check : checks_) {
    const std::string wrong = check(text);
    if (!wrong.empty()) throw UsageError(wrong);
  }
}

App::App(const std::string& name, const std::string& description)
    : owned_(std::make_unique<CLI::App>(description, name)),
      app_(owned_.get()) {
  app_->set_help_flag("-h,--help", "Print this help and exit");
  app_->require_subcommand(0, 1);
  app_->formatter(std::make_shared<HelpFormatter>());
}
App::App(CLI::App* borrowed) : app_(borrowed) {}
App::~App() = default;

App* App::add_subcommand(const std::string& name,
                         const std::string& description) {
  commands_.emplace_back(new App(app_->add_subcommand(name, description)));
  return commands_.back().get();
}

void App::require_subcommand() { app_->require_subcommand(1); }
void App::footer(const std::string& text) { app_->footer(text); }
void App::version(const std::string& text) {
  app_->set_version_flag("--version", text, "Print the version and exit");
}

Option* App::add(const std::string& names, const std::string& type, Read read,
                 std::function<std::string()> shown, const std::string& help) {
  options_.emplace_back(new Option(nullptr));
  Option* const option = options_.back().get();
  const auto take = [option, read](const CLI::results_t& words) {
    const std::string name = option->option_->get_name();
    try {
      for (const std::string& word : words) {
        const std::string text = without_mark(word);
        option->accept(text);
        read(text);
      }
    } catch (const UsageError& error) {
      throw UsageError(name + ": " + error.what());
    }
    return true;
  };
  option->option_ = app_->add_option(names, take, help, false, std::move(shown))
                        ->type_name(type);
  return option;
}

template <typename T>
Option* App::add_number(const std::string& names, T& value,
                        const std::string& help) {
  return add(
      names, kTypeName<T>,
      [&value](const std::string& text) { value = number_from<T>(text); },
      [&value] { return fmt::format("{}", value); }, help);
}

Option* App::add_option(const std::string& names, std::string& value,
                        const std::string& help) {
  return add(
      names, "TEXT", [&value](const std::string& text) { value = text; },
      [&value] { return value; }, help);
}

Option* App::add_option(const std::string& names,
                        std::vector<std::string>& value,
                        const std::string& help) {
  Option* const option = add(
      names, "TEXT",
      [&value](const std::string& text) { value.push_back(text); },
      [] { return ""; }, help);
  const bool by_place = !names.starts_with('-');
  option->option_
      ->expected(by_place ? CLI::detail::expected_max_vector_size : 1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return option;
}

Option* App::add_option(const std::string& names, int& value,
                        const std::string& help) {
  return add_number(names, value, help);
}
Option* App::add_option(const std::string& names, std::int64_t& value,
                        const std::string& help) {
  return add_number(names, value, help);
}
Option* App::add_option(const std::string& names, std::uint64_t& value,
                        const std::string& help) {
  return add_number(names, value, help);
}
Option* App::add_option(const std::string& names, float& value,
                        const std::string& help) {
  return add_number(names, value, help);
}
Option* App::add_option(const std::string& names, double& value,
                        const std::string& help) {
  return add_number(names, value, help);
}
Option* App::add_option(const std::string& names, std::optional<double>& value,
                        const std::string& help) {
  return add(
      names, kTypeName<double>,
      [&value](const std::string& text) { value = number_from<double>(text); },
      [] { return ""; }, help);
}

Option* App::add_choice(const std::string& names,
                        std::vector<std::string> spelled,
                        std::function<void(std::size_t)> choose,
                        std::function<std::string()> shown,
                        const std::string& help) {
  const Rule rule = member_of(spelled);
  const auto read = [spelled, choose](const std::string& text) {
    const auto found = std::find(spelled.begin(), spelled.end(), text);
    choose(static_cast<std::size_t>(found - spelled.begin()));
  };
  return add(names, "TEXT", read, std::move(shown), help)->check(rule);
}

Option* App::add_flag(const std::string& names, bool& value,
                      const std::string& help) {
  options_.emplace_back(new Option(app_->add_flag(names, value, help)));
  return options_.back().get();
}

void App::exclude(const std::string& name,
                  const std::vector<std::string>& others) {
  for (const std::string& other : others) {
    app_->get_option(name)->excludes(app_->get_option(other));
  }
}

bool App::parsed() const { return app_->parsed(); }
bool App::given(const std::string& option) const {
  return app_->get_option(option)->count() > 0;
}

const App* App::chosen() const {
  if (refused_at_ != nullptr) return refused_at_;
  for (const auto& command : commands_) {
    if (command->parsed()) return command->chosen();
  }
  return this;
}

std::vector<std::string> App::command_names() const {
  std::vector<std::string> names;
  for (const auto& command : commands_) {
    names.push_back(command->app_->get_name());
  }
  return names;
}

std::string App::help_command(const std::string& program) const {
  std::string text = " --help";
  for (const CLI::App* at = chosen()->app_; at->get_parent() != nullptr;
       at = at->get_parent()) {
    text = " " + at->get_name() + text;
  }
  return program + text;
}

// Before CLI11 has its turn, which would print its help for `regard atend -h`.
void App::refuse_unknown_command(int argc, const char* const* argv) {
  const App* at = this;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    if (at->commands_.empty()) return;
    const std::string word = argv[i];
    const std::vector<std::string> names = at->command_names();
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) {
      refused_at_ = at;
      throw UsageError("there is no command '" + word + "'" +
                       did_you_mean(word, names));
    }
    at = at->commands_[static_cast<std::size_t>(found - names.begin())].get();
  }
}

// The first word that CLI11 had no use for, if there is one. What stands before
// the name of a command is left with the command's parent.
void App::refuse_unexpected(int argc, const char* const* argv) const {
  std::vector<std::string> left;
  for (const std::string& word : app_->remaining(/*recurse=*/true)) {
    if (word != "--") left.push_back(without_mark(word));
  }
  const auto unused =
      std::find_if(argv + 1, argv + argc, [&](const char* word) {
        return std::find(left.begin(), left.end(), word) != left.end();
      });
  if (unused == argv + argc) return;
  std::string word = *unused;
  if (!word.starts_with('-')) {
    throw UsageError("'" + word + "' was not expected");
  }
  word = word.substr(0, word.find('='));
  const CLI::App& command = *chosen()->app_;
  if (command.get_option_no_throw(word) != nullptr) {
    throw UsageError("options of a command come after its name: " +
                     command.get_name() + " " + word);
  }
  throw UsageError("there is no option " + word +
                   did_you_mean(word, names_of(command)));
}

std::optional<std::string> App::parse(int argc, const char* const* argv) {
  refuse_unknown_command(argc, argv);
  try {
    app_->parse(marked_words(argc, argv));
    return std::nullopt;
  } catch (const CLI::ExtrasError& error) {
    refuse_unexpected(argc, argv);
    throw UsageError(error.what());
  } catch (const CLI::ArgumentMismatch& error) {
    // "--beam: 1 required INT missing", "--beam: At Most 1 required but
    // received 2"
    const std::string said = error.what();
    throw UsageError(said.substr(0, said.find(':')) +
                     (said.ends_with("missing") ? " wants a value"
                                                : " is given more than once"));
  } catch (const CLI::RequiredError& error) {
    const App* const at = chosen();
    if (at->commands_.empty()) {
      // What is missing may be there, misspelt or before the command.
      refuse_unexpected(argc, argv);
      throw UsageError(error.what());
    }
    throw UsageError(fmt::format("{} wants one of: {}", at->app_->get_name(),
                                 fmt::join(at->command_names(), ", ")));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw UsageError(error.what());
    std::ostringstream text;
    app_->exit(error, text, text);
    return text.str();
  }
}

}  // namespace regard::cli
