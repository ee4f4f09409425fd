// SPDX-License-Identifier: Apache-2.0
// The options of a command. CLI11 reads the command line, in options.cc alone:
// its header takes a compiler ten seconds, and every command declares options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace regard::cli {

// What is wrong with a value as it was written; empty if nothing is.
using Check = std::function<std::string(const std::string& text)>;

// A check, and how the help shows a value that has no name of its own.
struct Rule {
  Check check;
  std::string shown;
};

class Option {
 public:
  // Each returns the option itself, for the next.
  Option* type_name(const std::string& name);  // of the value, in the help
  Option* group(const std::string& title);     // where the help lists it
  Option* required();
  // The other option is there already.
  Option* excludes(const std::string& other);
  Option* needs(const std::string& other);
  Option* check(const Rule& rule);
  Option* check(Check check);
  Option* capture_default_str();  // the help shows the value it has now
  // Elsewhere an empty value is a script's variable that was never set, and
  // must not mean "not given".
  Option* may_be_empty();

 private:
  friend class App;
  explicit Option(CLI::Option* option) : option_(option) {}
  // Throws UsageError.
  void accept(const std::string& text) const;

  CLI::Option* option_;
  std::vector<Check> checks_;
  bool named_ = false;
  bool may_be_empty_ = false;
};

// A command: its options, and perhaps commands of its own. Values are written
// while the command line is parsed, into what the caller keeps.
class App {
 public:
  App(const std::string& name, const std::string& description);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  // They live as long as this one.
  App* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand();
  void footer(const std::string& text);
  void version(const std::string& text);  // what --version prints

  // "-x,--input" is an option, a name without dashes a value by its place. A
  // number must be finite and one that the type holds. A vector takes as many
  // values as come, an option's one by one.
  Option* add_option(const std::string& names, std::string& value,
                     const std::string& help);
  Option* add_option(const std::string& names, std::vector<std::string>& value,
                     const std::string& help);
  Option* add_option(const std::string& names, int& value,
                     const std::string& help);
  Option* add_option(const std::string& names, std::int64_t& value,
                     const std::string& help);
  Option* add_option(const std::string& names, std::uint64_t& value,
                     const std::string& help);
  Option* add_option(const std::string& names, float& value,
                     const std::string& help);
  Option* add_option(const std::string& names, double& value,
                     const std::string& help);
  Option* add_option(const std::string& names, std::optional<double>& value,
                     const std::string& help);

  // One of a few names.
  template <typename Enum>
  Option* add_choice(const std::string& names, Enum& value,
                     const std::vector<std::pair<std::string, Enum>>& choices,
                     const std::string& help) {
    std::vector<std::string> spelled;
    std::vector<Enum> meant;
    for (const auto& [name, choice] : choices) {
      spelled.push_back(name);
      meant.push_back(choice);
    }
    const auto shown = [&value, choices = choices]() -> std::string {
      for (const auto& [name, choice] : choices) {
        if (choice == value) return name;
      }
      return "";
    };
    return add_choice(
        names, std::move(spelled),
        [&value, meant](std::size_t chosen) { value = meant[chosen]; }, shown,
        help);
  }

  Option* add_flag(const std::string& names, bool& value,
                   const std::string& help);

  // Reads main's arguments. Returns what to print where help or the version is
  // asked for. Throws UsageError.
  std::optional<std::string> parse(int argc, const char* const* argv);

  // Options that are there already and do not go with `name`.
  void exclude(const std::string& name, const std::vector<std::string>& others);

  bool parsed() const;  // whether it was on the command line
  bool given(const std::string& option) const;  // likewise

  // "regard attend --help" where the user got as far as the command of
  // `program`, as it was typed.
  std::string help_command(const std::string& program) const;

 private:
  using Read = std::function<void(const std::string& text)>;

  explicit App(CLI::App* borrowed);
  Option* add(const std::string& names, const std::string& type, Read read,
              std::function<std::string()> shown, const std::string& help);
  template <typename T>
  Option* add_number(const std::string& names, T& value,
                     const std::string& help);
  Option* add_choice(const std::string& names, std::vector<std::string> spelled,
                     std::function<void(std::size_t)> choose,
                     std::function<std::string()> shown,
                     const std::string& help);
  const App* chosen() const;  // the command that was named, or itself
  std::vector<std::string> command_names() const;
  void refuse_unknown_command(int argc, const char* const* argv);
  void refuse_unexpected(int argc, const char* const* argv) const;

  std::unique_ptr<CLI::App> owned_;  // by the program alone
  CLI::App* app_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<App>> commands_;
  const App* refused_at_ = nullptr;  // the last command before a misspelt one
};

}  // namespace regard::cli
