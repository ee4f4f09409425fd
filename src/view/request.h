// SPDX-License-Identifier: Apache-2.0
// What a request may say, apart from how it comes: no sockets in here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "regard/view/trace.h"

namespace regard::view {

// Why a request is not answered.
struct Refusal {
  int status = 400;
  std::string code;
  std::string message;
  std::optional<std::int64_t> limit = {};
  std::optional<std::int64_t> count = {};  // what came, where there is a limit
};

// {"error": {...}}
std::string to_json(const Refusal& refusal);

struct TraceRequest {
  std::string text;
  std::string direction;  // empty: not said
};

// The body of POST /api/trace. Line ends and tabs become blanks.
std::variant<TraceRequest, Refusal> parse_trace_request(
    std::string_view body, std::int64_t most_characters);

// A page of another site may make a browser send requests here. Its name for us
// is then not ours ("DNS rebinding"), or its own name stands in Origin or
// Sec-Fetch-Site. Empty: the header did not come.
struct Caller {
  std::string host = {};
  std::string origin = {};
  std::string fetch_site = {};
  bool is_page = false;  // GET /, which a link of any site may lead to
};
std::optional<Refusal> refuse_stranger(const Caller& caller,
                                       const std::string& own_host);

// A number from 0 to 999999 in plain digits.
std::optional<std::int64_t> small_number(std::string_view text);

// "3-4", both such numbers.
std::optional<Section::Range> small_range(std::string_view text);

}  // namespace regard::view
