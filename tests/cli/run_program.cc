// SPDX-License-Identifier: Apache-2.0
#include "cli/run_program.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <stdexcept>

namespace regard::test {
namespace {

[[noreturn]] void become_regard(const std::vector<std::string>& arguments,
                                const Environment& environment) {
  std::vector<std::string> texts = {REGARD_PROGRAM};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) {
    settings.push_back(name + "=" + value);
  }
  std::vector<char*> envp;
  for (std::string& setting : settings) envp.push_back(setting.data());
  envp.push_back(nullptr);
  execve(argv[0], argv.data(), envp.data());
  std::_Exit(127);
}

int code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace

Ended run_regard(const std::vector<std::string>& arguments,
                 const Environment& environment, const std::string& input) {
  // Files, because a full pipe would stop the program.
  const testing::TemporaryFolder folder;
  const std::string out = folder / "out";
  const std::string err = folder / "err";
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    dup2(open(input.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), flags, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), flags, 0600), STDERR_FILENO);
    become_regard(arguments, environment);
  }
  Ended ended;
  ended.code = code_of(child);
  ended.out = testing::read_text(out);
  ended.err = testing::read_text(err);
  return ended;
}

Ended run_on_terminal(const std::vector<std::string>& arguments, int columns,
                      const Environment& environment,
                      const std::string& typed) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("forkpty failed");
  if (child == 0) become_regard(arguments, environment);
  if (write(terminal, typed.data(), typed.size()) !=
      static_cast<ssize_t>(typed.size())) {
    throw std::runtime_error("the terminal takes no input");
  }
  Ended ended;
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(terminal, buffer, sizeof(buffer));
    if (got <= 0) break;
    ended.out.append(buffer, static_cast<std::size_t>(got));
  }
  close(terminal);
  ended.code = code_of(child);
  return ended;
}

std::string without_color(const std::string& text) {
  static const std::regex escape("\x1b\\[[0-9;]*m");
  return std::regex_replace(text, escape, "");
}

}  // namespace regard::test
