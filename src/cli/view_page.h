// SPDX-License-Identifier: Apache-2.0
// The viewer's page: at an address of this machine, or as one file.
#pragma once

#include <optional>
#include <string>

#include "cli/options.h"
#include "regard/tasks/translator.h"
#include "regard/view/server.h"
#include "regard/view/trace.h"

namespace regard::cli {

struct PageFlags {
  std::string export_to;
  std::string layers;
  std::string heads;
  std::string host = "127.0.0.1";
  int port = -1;  // not said
  bool no_open = false;
};

void add_page_options(App& app, PageFlags& flags, const std::string& group);

// Throws UsageError for options that mean nothing without --export or, where
// no page is shown at all, without that.
void check_page_options(const PageFlags& flags, bool shown = true);

// Writes the page with a trace inside, and says where it is.
void export_page(const view::Trace& trace,
                 const std::optional<view::Trace>& beside,
                 const PageFlags& flags);

// Serves the page until Ctrl-C, and opens it where there is a desktop. The
// translator may be null where a trace or another model is given.
void serve_page(const tasks::Translator* translator,
                const std::optional<view::Trace>& trace,
                view::ServerOptions options, const PageFlags& flags);

// One or the other, of a trace alone.
void show_page(const view::Trace& trace, const PageFlags& flags);

}  // namespace regard::cli
