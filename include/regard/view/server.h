// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "regard/tasks/language_model.h"
#include "regard/tasks/text_encoder.h"
#include "regard/tasks/translator.h"
#include "regard/view/trace.h"

namespace regard::view {

// What one request, and all of them together, may take.
struct ServerLimits {
  std::int64_t characters = 2000;  // of a text, as code points
  std::int64_t tokens = 200;       // of a text, as the model reads it
  std::int64_t body_bytes = 64 << 10;
  std::int64_t head_bytes = 32 << 10;  // request line and headers
  std::size_t traces = 256;            // kept for later requests, at most
  std::size_t trace_bytes = std::size_t{64} << 20;
  int connections = 32;  // served at once
  int waiting = 64;      // connections that wait for their turn
  int computing = 0;     // translations at once; 0: one for each core
  int queued = 32;       // translations that wait for their turn
  std::chrono::milliseconds patience{10000};  // for a whole request to come
  std::chrono::milliseconds idle{5000};       // between two of one connection
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;       // 0: any that is free
  std::string model;  // its name
  Note note{};        // one line on what it is worth
  Start start{};      // where the page opens a translation, if it has that head
  tasks::TranslateOptions translate{};
  // Reads the texts where there is no translator; borrowed.
  const tasks::TextEncoder* encoder = nullptr;
  // Or this, where there is no encoder either; it goes on with each text by at
  // most so many tokens.
  const tasks::LoadedModel* language_model = nullptr;
  std::int64_t max_tokens = 0;
  std::optional<Trace> beside{};  // of another text, compared with the first
  ServerLimits limits{};
};

// Was the library built with cpp-httplib? Without it a Server throws
// InvalidArgument.
bool server_available();

// The viewer's page and what it asks for, over HTTP:
//
//   GET  /             the page
//   GET  /api/info     the model, the limits, and the trace given at the start
//   POST /api/trace    {"text": ..., "direction": ...} -> the trace's header
//   GET  /api/weights  ?trace=&section=&layer=&head= -> the weights of a head
//   GET  /api/rows     ?trace=&section=&queries=1-2 -> where these tokens look
//                      in every head
//   GET  /api/vectors  ?trace=&section=&layer=&head= -> its queries and keys
//
// Every refusal is JSON, {"error": {"code", "message", "limit"}}. Only these
// routes exist and no file is ever opened. Requests must come to localhost, to
// an address, or to `host` by name, and from no other site's page.
class Server {
 public:
  // Listens from now on; nobody is answered before run(). Borrows the
  // translator, which may be null where a trace or another model is given.
  // Throws IoError where the address cannot be had.
  Server(const tasks::Translator* translator, std::optional<Trace> trace,
         ServerOptions options = {});
  ~Server();

  int port() const;
  void run();   // until stop()
  void stop();  // from any thread

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace regard::view
