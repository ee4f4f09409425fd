// SPDX-License-Identifier: Apache-2.0
#include "regard/view/server.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "core/plain_message.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/core/version.h"
#include "regard/view/continuation.h"
#include "regard/view/encoding.h"
#include "regard/view/page.h"
#include "regard/view/translation.h"
#include "view/connection.h"
#include "view/request.h"
#include "view/trace_json.h"
#include "view/trace_store.h"

namespace regard::view {
namespace {

using httplib::Request;
using httplib::Response;
constexpr const char* kJson = "application/json; charset=utf-8";

struct Refused {
  Refusal why;
};

[[noreturn]] void refuse(int status, std::string code, std::string message,
                         std::optional<std::int64_t> limit = {},
                         std::optional<std::int64_t> count = {}) {
  throw Refused{{status, std::move(code), std::move(message), limit, count}};
}

void answer(Response& response, const Refusal& refusal) {
  response.status = refusal.status;
  response.set_content(to_json(refusal), kJson);
}

Refusal busy() {
  return {503, "busy",
          "more is asked than this machine can do; try again in a moment"};
}

// Computations that run at once, and those that may wait for them.
class Turns {
 public:
  Turns(int running, int waiting) : free_(running), may_wait_(waiting) {}

  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(turns) { turns.take(); }
    ~Turn() { turns_.give(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
  };

 private:
  void take() {
    std::unique_lock lock(mutex_);
    if (free_ == 0) {
      if (may_wait_ == 0) throw Refused{busy()};
      --may_wait_;
      changed_.wait(lock, [this] { return free_ > 0; });
      ++may_wait_;
    }
    --free_;
  }
  void give() {
    {
      const std::lock_guard lock(mutex_);
      ++free_;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
  int may_wait_;
};

int cores() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

ConnectionLimits connection_limits(const ServerLimits& limits) {
  return {limits.head_bytes, limits.body_bytes, limits.connections,
          limits.waiting,    limits.patience,   limits.idle};
}

std::string busy_response() {
  const std::string body = to_json(busy());
  return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " +
         std::string(kJson) +
         "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

std::int64_t number(const Request& request, const char* name) {
  const auto value = small_number(request.get_param_value(name));
  if (!value) {
    refuse(400, "bad_request", std::string(name) + " must be a number");
  }
  return *value;
}

bool has_json(const Request& request) {
  const std::string type = request.get_header_value("Content-Type");
  return type == "application/json" || type.starts_with("application/json;");
}

std::string direction_of(const std::string& from, const std::string& to) {
  return from + "-" + to;
}

}  // namespace

struct Server::Parts {
  Parts(const tasks::Translator* with, std::optional<Trace> trace,
        ServerOptions given)
      : options(std::move(given)),
        translator(with),
        traces(options.limits.traces, options.limits.trace_bytes),
        turns(options.limits.computing > 0 ? options.limits.computing : cores(),
              options.limits.queued),
        http(connection_limits(options.limits), busy_response()) {
    if (trace) {
      start = std::make_shared<StoredTrace>(*std::move(trace), "start");
      start_header = header_json(start->trace(), start->id());
    }
    if (options.beside) {
      beside =
          std::make_shared<StoredTrace>(*std::move(options.beside), "beside");
      beside_header = header_json(beside->trace(), beside->id());
    }
    set_routes();
  }

  void set_routes();
  void check_caller(const Request& request) const;
  void check_route(const Request& request) const;
  std::vector<std::string> directions() const;
  std::string language_of(const TraceRequest& request) const;
  std::string info() const;
  std::string trace(const Request& request,
                    const httplib::ContentReader& reader);
  void check_tokens(std::int64_t tokens, std::int64_t most) const;
  Trace translated(const TraceRequest& asked);
  Trace encoded(const TraceRequest& asked);
  Trace decoded(const TraceRequest& asked);
  Trace traced(const TraceRequest& asked);
  bool can_read() const {
    return translator != nullptr || options.encoder != nullptr ||
           options.language_model != nullptr;
  }
  std::shared_ptr<StoredTrace> stored(const Request& request);
  std::string weights(const Request& request);
  std::string rows(const Request& request);
  std::string vectors(const Request& request);

  // Runs what answers; a refusal becomes JSON with its status.
  template <typename Body>
  static void guard(Response& response, const Body& body) {
    try {
      body();
    } catch (const Refused& refused) {
      answer(response, refused.why);
    } catch (const InvalidArgument& error) {
      answer(response, {400, "bad_request", plain_message(error.what())});
    } catch (const std::exception&) {
      answer(response, {500, "internal", "the server failed at this request"});
    }
  }

  ServerOptions options;
  const tasks::Translator* translator;
  TraceStore traces;
  std::shared_ptr<StoredTrace> start;
  std::string start_header = "null";
  std::shared_ptr<StoredTrace> beside;
  std::string beside_header = "null";
  Turns turns;
  BoundedServer http;
  int port = 0;
};

void Server::Parts::check_caller(const Request& request) const {
  Caller caller;
  caller.host = request.get_header_value("Host");
  caller.origin = request.get_header_value("Origin");
  caller.fetch_site = request.get_header_value("Sec-Fetch-Site");
  caller.is_page = request.path == "/";
  if (const auto why = refuse_stranger(caller, options.host)) {
    throw Refused{*why};
  }
}

void Server::Parts::check_route(const Request& request) const {
  const std::string& path = request.path;
  const bool post = path == "/api/trace";
  const bool get = path == "/" || path == "/api/info" ||
                   path == "/api/weights" || path == "/api/rows" ||
                   path == "/api/vectors";
  if (!post && !get) {
    refuse(404, "not_found", "there is nothing at this address");
  }
  if (request.method != (post ? "POST" : "GET")) {
    refuse(405, "method",
           path + " takes " + (post ? "POST" : "GET") + ", nothing else");
  }
}

std::vector<std::string> Server::Parts::directions() const {
  if (translator == nullptr) return {};
  const tasks::Languages& languages = translator->config().languages;
  std::vector<std::string> result = {
      direction_of(languages.source, languages.target)};
  if (languages.both_directions) {
    result.push_back(direction_of(languages.target, languages.source));
  }
  return result;
}

// What TranslateOptions::to must be.
std::string Server::Parts::language_of(const TraceRequest& request) const {
  const std::vector<std::string> known = directions();
  const tasks::Languages& languages = translator->config().languages;
  if (!languages.both_directions) {
    if (request.direction.empty() || request.direction == known.front()) {
      return "";
    }
  } else if (request.direction.empty()) {
    const std::string to = tasks::language_to(languages, request.text);
    if (!to.empty()) return to;
  } else if (request.direction == known.front()) {
    return languages.target;
  } else if (request.direction == known.back()) {
    return languages.source;
  }
  std::string list = known.front();
  if (known.size() > 1) list += " or " + known.back();
  refuse(400, "direction", "the direction must be " + list);
}

std::string Server::Parts::info() const {
  const Json limits = {{"characters", options.limits.characters},
                       {"tokens", options.limits.tokens}};
  Json all = {{"model", model_json(options.model, options.note)},
              {"directions", directions()},
              {"can_read", can_read()},
              {"limits", limits},
              {"version", version()}};
  std::string text =
      all.dump({.keys = Json::Keys::kAsWritten, .replace_invalid = true});
  text.pop_back();
  return text + ",\"trace\":" + start_header + ",\"beside\":" + beside_header +
         "}";
}

void Server::Parts::check_tokens(std::int64_t tokens, std::int64_t most) const {
  const std::int64_t limit = std::min(options.limits.tokens, most);
  if (tokens > limit) {
    refuse(422, "too_long",
           "a text may have at most " + std::to_string(limit) +
               " tokens; it has " + std::to_string(tokens),
           limit, tokens);
  }
}

Trace Server::Parts::translated(const TraceRequest& asked) {
  tasks::TranslateOptions translate = options.translate;
  translate.to = language_of(asked);
  // The tag of a language and the end are tokens, too.
  check_tokens(static_cast<std::int64_t>(
                   translator->tokenizer().encode(asked.text).size() +
                   (translator->config().languages.both_directions ? 2 : 1)),
               translator->config().model.max_length);
  const Turns::Turn turn(turns);
  return trace_translation(*translator, asked.text, translate);
}

Trace Server::Parts::encoded(const TraceRequest& asked) {
  if (!asked.direction.empty()) {
    refuse(400, "direction", "an encoder has no direction");
  }
  const auto pieces = options.encoder->tokenizer().encode(asked.text, {});
  check_tokens(static_cast<std::int64_t>(pieces.ids.size()),
               options.encoder->config().max_length);
  const Turns::Turn turn(turns);
  return trace_encoding(*options.encoder, asked.text,
                        {.threads = options.translate.threads});
}

Trace Server::Parts::decoded(const TraceRequest& asked) {
  if (!asked.direction.empty()) {
    refuse(400, "direction", "a language model has no direction");
  }
  const tasks::LoadedModel& loaded = *options.language_model;
  const auto pieces = loaded.tokenizer->encode(asked.text, {});
  check_tokens(static_cast<std::int64_t>(pieces.ids.size()),
               loaded.model.config().context - options.max_tokens);
  const Turns::Turn turn(turns);
  return trace_continuation(
      loaded, asked.text,
      {.max_tokens = options.max_tokens, .threads = options.translate.threads});
}

Trace Server::Parts::traced(const TraceRequest& asked) {
  try {
    if (translator != nullptr) return translated(asked);
    return options.encoder != nullptr ? encoded(asked) : decoded(asked);
  } catch (const InvalidArgument& error) {
    refuse(422, "unreadable", plain_message(error.what()));
  }
}

std::string Server::Parts::trace(const Request& request,
                                 const httplib::ContentReader& reader) {
  const auto most = static_cast<std::size_t>(options.limits.body_bytes);
  std::string body;
  bool fits = true;
  const auto take = [&](const char* data, std::size_t size) {
    fits = body.size() + size <= most;
    if (fits) body.append(data, size);
    return fits;
  };
  const bool is_json = has_json(request);
  // A form has a reader of its own kind; what is no JSON is not read at all.
  const bool whole = is_json && reader(take);
  check_caller(request);
  if (!is_json) {
    refuse(415, "content_type", "the body must be application/json");
  }
  if (!fits) {
    refuse(413, "too_large",
           "a body may have at most " + std::to_string(most) + " bytes",
           options.limits.body_bytes);
  }
  if (!whole) refuse(400, "bad_request", "the body did not come whole");
  if (!can_read()) {
    refuse(404, "no_model",
           "there is no model to read a text: start regard view --model");
  }
  const auto parsed = parse_trace_request(body, options.limits.characters);
  if (const Refusal* why = std::get_if<Refusal>(&parsed)) throw Refused{*why};
  const auto& asked = std::get<TraceRequest>(parsed);
  Trace trace = traced(asked);
  trace.model = options.model;
  trace.note = options.note;
  trace.set_start(options.start);
  const auto stored = traces.add(std::move(trace));
  return header_json(stored->trace(), stored->id());
}

std::shared_ptr<StoredTrace> Server::Parts::stored(const Request& request) {
  const std::string id = request.get_param_value("trace");
  std::shared_ptr<StoredTrace> found;
  for (const auto& given : {start, beside}) {
    if (given && id == given->id()) found = given;
  }
  if (!found) found = traces.find(id);
  if (!found) {
    refuse(404, "gone", "there is no such trace, or it had to make room");
  }
  return found;
}

std::string Server::Parts::rows(const Request& request) {
  const auto queries = small_range(request.get_param_value("queries"));
  if (!queries) {
    refuse(400, "bad_request", "queries must be two numbers, such as 3-4");
  }
  const auto held = stored(request);
  const Section& section = held->trace().section(number(request, "section"));
  return little_endian(section.rows_of(*queries));
}

std::string Server::Parts::vectors(const Request& request) {
  const auto held = stored(request);
  const Section& section = held->trace().section(number(request, "section"));
  return little_endian(
      section.vectors(number(request, "layer"), number(request, "head")));
}

std::string Server::Parts::weights(const Request& request) {
  const auto held = stored(request);
  const std::int64_t index = number(request, "section");
  const Section& section = held->trace().section(index);
  if (request.get_param_value("layer") == "rollout") {
    if (!section.has_rollout()) {
      refuse(400, "bad_request", "this section has no rollout");
    }
    const Turns::Turn turn(turns);
    return little_endian(held->rollout(index));
  }
  return little_endian(
      section.codes(number(request, "layer"), number(request, "head")));
}

void Server::Parts::set_routes() {
  http.set_default_headers(
      {{"Content-Security-Policy", page_policy() + "; frame-ancestors 'none'"},
       {"X-Content-Type-Options", "nosniff"},
       {"X-Frame-Options", "DENY"},
       {"Referrer-Policy", "no-referrer"},
       {"Cross-Origin-Resource-Policy", "same-origin"},
       {"Cross-Origin-Opener-Policy", "same-origin"},
       {"Cache-Control", "no-store"}});
  http.set_keep_alive_max_count(kMostRequestsOfOne);
  http.set_tcp_nodelay(true);
  // httplib's own would let a second server have the same port.
  http.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  // A body that nobody reads to its end would be taken for the next request.
  http.may_go_on = [most = options.limits.body_bytes](const Request& request) {
    if (request.has_header("Transfer-Encoding")) return false;
    if (request.method == "GET") return !request.has_header("Content-Length");
    const auto length =
        small_number(request.get_header_value("Content-Length"));
    return request.method == "POST" && request.path == "/api/trace" &&
           has_json(request) && length && *length <= most;
  };
  http.set_pre_routing_handler([this](const Request& request,
                                      Response& response) {
    guard(response, [&] {
      if (request.path != "/api/trace") check_caller(request);
      check_route(request);
    });
    return response.status >= 400 ? httplib::Server::HandlerResponse::Handled
                                  : httplib::Server::HandlerResponse::Unhandled;
  });
  http.Get("/", [](const Request&, Response& response) {
    guard(response, [&] {
      const std::string_view page = viewer_page();
      response.set_content(page.data(), page.size(),
                           "text/html; charset=utf-8");
    });
  });
  http.Get("/api/info", [this](const Request&, Response& response) {
    guard(response, [&] { response.set_content(info(), kJson); });
  });
  const auto get_bytes = [this](const char* path,
                                std::string (Parts::*bytes)(const Request&)) {
    http.Get(path, [this, bytes](const Request& request, Response& response) {
      guard(response, [&] {
        response.set_content((this->*bytes)(request),
                             "application/octet-stream");
      });
    });
  };
  get_bytes("/api/weights", &Parts::weights);
  get_bytes("/api/rows", &Parts::rows);
  get_bytes("/api/vectors", &Parts::vectors);
  http.Post("/api/trace", [this](const Request& request, Response& response,
                                 const httplib::ContentReader& reader) {
    guard(response,
          [&] { response.set_content(trace(request, reader), kJson); });
  });
  // What httplib itself refuses: a head that is none.
  http.set_error_handler([](const Request&, Response& response) {
    if (!response.body.empty()) return;
    answer(response, {response.status, "bad_request",
                      "this is not a request that can be read"});
  });
}

bool server_available() { return true; }

Server::Server(const tasks::Translator* translator, std::optional<Trace> trace,
               ServerOptions options)
    : parts_(std::make_unique<Parts>(translator, std::move(trace),
                                     std::move(options))) {
  const std::string& host = parts_->options.host;
  require(!host.empty(), "view::Server",
          "host must be an address or a name; an empty one would be every "
          "address of this machine");
  const int wanted = parts_->options.port;
  require(wanted >= 0 && wanted <= 65535, "view::Server",
          "a port must lie in 0 .. 65535; got ", wanted);
  if (wanted == 0) {
    parts_->port = parts_->http.bind_to_any_port(host);
  } else if (parts_->http.bind_to_port(host, wanted)) {
    parts_->port = wanted;
  }
  if (parts_->port <= 0) {
    throw_io_error("view::Server", "cannot listen at ", host, ":", wanted,
                   "; is the port in use, and the address this machine's?");
  }
}

Server::~Server() = default;
int Server::port() const { return parts_->port; }
void Server::run() { parts_->http.serve(); }
void Server::stop() { parts_->http.end(); }

}  // namespace regard::view
