// SPDX-License-Identifier: Apache-2.0
#include "view/request.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "json/json.h"
#include "regard/text/utf8.h"

namespace regard::view {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

// "localhost:8000" -> "localhost", "[::1]:8000" -> "[::1]"
std::string name_of(const std::string& host) {
  const std::size_t end = host.starts_with('[')
                              ? std::min(host.find(']'), host.size() - 1) + 1
                              : std::min(host.find(':'), host.size());
  return lower(std::string_view(host).substr(0, end));
}

// No DNS server can make an address lead elsewhere.
bool is_address(std::string_view name) {
  if (name.starts_with('[')) {
    return name.find_first_not_of("0123456789abcdef:.", 1) == name.size() - 1 &&
           name.ends_with(']');
  }
  return !name.empty() &&
         name.find_first_not_of("0123456789.") == std::string_view::npos;
}

Refusal bad_request(std::string message) {
  return {400, "bad_request", std::move(message)};
}

}  // namespace

std::string to_json(const Refusal& refusal) {
  Json error = {{"code", refusal.code}, {"message", refusal.message}};
  if (refusal.limit) error["limit"] = *refusal.limit;
  if (refusal.count) error["count"] = *refusal.count;
  const Json all = {{"error", std::move(error)}};
  // A message may quote what was not UTF-8.
  return all.dump({.keys = Json::Keys::kAsWritten, .replace_invalid = true});
}

std::variant<TraceRequest, Refusal> parse_trace_request(
    std::string_view body, std::int64_t most_characters) {
  if (text::find_invalid_utf8(body) != std::string_view::npos) {
    return bad_request("the body must be UTF-8");
  }
  const Json json = Json::parse_or_null(body);
  if (!json.is_object()) {
    return bad_request(
        "the body must be a JSON object, such as {\"text\": \"...\"}");
  }
  TraceRequest request;
  for (const auto& [name, value] : json.items()) {
    if (name != "text" && name != "direction") {
      return bad_request("the body may have text and direction, nothing else");
    }
    if (!value.is_string()) return bad_request(name + " must be a string");
    std::string& to = name == "text" ? request.text : request.direction;
    to = value.get<std::string>();
  }
  std::replace_if(
      request.text.begin(), request.text.end(),
      [](char c) { return c == '\n' || c == '\r' || c == '\t' || c == '\0'; },
      ' ');
  if (request.text.find_first_not_of(' ') == std::string::npos) {
    return Refusal{422, "empty", "there must be a text"};
  }
  const auto characters =
      static_cast<std::int64_t>(text::code_points(request.text).size());
  if (characters > most_characters) {
    return Refusal{422, "too_long",
                   "a text may have at most " +
                       std::to_string(most_characters) +
                       " characters; it has " + std::to_string(characters),
                   most_characters, characters};
  }
  return request;
}

std::optional<Refusal> refuse_stranger(const Caller& caller,
                                       const std::string& own_host) {
  const std::string name = caller.host.empty() ? "" : name_of(caller.host);
  if (name != "localhost" && name != lower(own_host) && !is_address(name)) {
    return Refusal{403, "host",
                   "this server answers to localhost, to its address and to "
                   "its --host, not to other names"};
  }
  if (caller.is_page) return std::nullopt;
  const bool same_origin =
      caller.origin.empty() ||
      lower(caller.origin) == "http://" + lower(caller.host);
  const bool same_site = caller.fetch_site.empty() ||
                         caller.fetch_site == "same-origin" ||
                         caller.fetch_site == "none";
  if (!same_origin || !same_site) {
    return Refusal{403, "origin",
                   "pages of other sites may not ask this server"};
  }
  return std::nullopt;
}

std::optional<std::int64_t> small_number(std::string_view text) {
  if (text.empty() || text.size() > 6) return std::nullopt;
  std::int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + (c - '0');
  }
  return number;
}

std::optional<Section::Range> small_range(std::string_view text) {
  const std::size_t cut = text.find('-');
  if (cut == std::string_view::npos) return std::nullopt;
  const auto first = small_number(text.substr(0, cut));
  const auto last = small_number(text.substr(cut + 1));
  if (!first || !last) return std::nullopt;
  return Section::Range{*first, *last};
}

}  // namespace regard::view
