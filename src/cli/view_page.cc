// SPDX-License-Identifier: Apache-2.0
#include "cli/view_page.h"

#include <fmt/format.h>
#include <malloc.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cli/checks.h"
#include "cli/number_list.h"
#include "cli/screen.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "regard/core/error.h"
#include "regard/view/page.h"

namespace regard::cli {
namespace {

constexpr int kPort = 8777;  // where the page stands, if it is free

// Opens the page in a browser, without waiting for it.
void open_browser(const std::string& address) {
  std::string program = "xdg-open";
  std::string argument = address;
  char* const argv[] = {program.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", 2, 0);
  }
  pid_t child = 0;
  // Where there is no such program, the address on the screen must do.
  (void)posix_spawnp(&child, program.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
}

bool has_desktop() {
  const auto is_set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  return is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
}

std::unique_ptr<view::Server> start_server(
    const tasks::Translator* translator,
    const std::optional<view::Trace>& trace, view::ServerOptions options,
    int asked) {
  options.port = asked < 0 ? kPort : asked;
  try {
    return std::make_unique<view::Server>(translator, trace, options);
  } catch (const IoError&) {
    if (asked >= 0) throw;
    options.port = 0;  // nobody asked for this one: any other will do
    try {
      return std::make_unique<view::Server>(translator, trace, options);
    } catch (const IoError&) {
      // It was not the port: the first error says more.
    }
    throw;
  }
}

// Each of many threads computes now and then. With a heap of its own, as glibc
// gives it, each would keep what its largest sentence took.
void share_one_heap() {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace

void add_page_options(App& app, PageFlags& flags, const std::string& group) {
  app.add_option("--export", flags.export_to,
                 "Write one HTML file that works offline; start no server")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--layers", flags.layers,
                 "Layers whose weights the page contains; all if not given")
      ->type_name("LIST")
      ->check(check_numbers)
      ->group(group);
  app.add_option("--heads", flags.heads, "The same for heads")
      ->type_name("LIST")
      ->check(check_numbers)
      ->group(group);
  app.add_option(
         "--port", flags.port,
         fmt::format("{}, or any free one, if not given; 0: any", kPort))
      ->type_name("P")
      ->check(whole_between(0, 65535))
      ->group(group);
  app.add_option("--host", flags.host, "Address to listen at")
      ->type_name("HOST")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--no-open", flags.no_open, "Do not open a browser")
      ->group(group);
  app.exclude("--export", {"--port", "--host", "--no-open"});
}

void check_page_options(const PageFlags& flags, bool shown) {
  if (!shown &&
      (flags.port >= 0 || flags.no_open || flags.host != PageFlags().host)) {
    throw UsageError("--host, --port and --no-open go with --view");
  }
  if (flags.export_to.empty() &&
      !(flags.layers.empty() && flags.heads.empty())) {
    throw UsageError("--layers and --heads choose what --export writes");
  }
}

void export_page(const view::Trace& trace,
                 const std::optional<view::Trace>& beside,
                 const PageFlags& flags) {
  view::ExportOptions options;
  options.layers = parse_numbers(flags.layers, "--layers");
  options.heads = parse_numbers(flags.heads, "--heads");
  std::int64_t layers = 0, heads = 0;
  for (const view::Section& section : trace.sections()) {
    layers = std::max(layers, section.layers());
    heads = std::max(heads, section.config().heads);
  }
  check_below(options.layers, layers, "--layers", "layers");
  check_below(options.heads, heads, "--heads", "heads");
  if (beside) options.beside = &*beside;
  view::export_page(trace, flags.export_to, options);
  if (!trace.target.empty()) print(on_one_line(trace.target) + "\n");
  print(fmt::format("page -> {}\n", on_one_line(flags.export_to)));
}

void serve_page(const tasks::Translator* translator,
                const std::optional<view::Trace>& trace,
                view::ServerOptions options, const PageFlags& flags) {
  share_one_heap();
  options.host = flags.host;
  const auto server =
      start_server(translator, trace, std::move(options), flags.port);
  const bool is_v6 = flags.host.find(':') != std::string::npos;
  const std::string address =
      fmt::format("http://{}:{}/", is_v6 ? "[" + flags.host + "]" : flags.host,
                  server->port());
  print(fmt::format("The viewer is at {}\nCtrl-C ends it.\n", address));
  if (!flags.no_open && has_desktop()) open_browser(address);
  server->run();
}

void show_page(const view::Trace& trace, const PageFlags& flags) {
  if (!flags.export_to.empty()) return export_page(trace, {}, flags);
  view::ServerOptions options;
  options.model = trace.model;
  options.note = trace.note;
  serve_page(nullptr, trace, std::move(options), flags);
}

}  // namespace regard::cli
