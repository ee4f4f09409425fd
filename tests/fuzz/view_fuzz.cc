// SPDX-License-Identifier: Apache-2.0
// Any bytes are refused, or are the body of a request to the viewer, or tokens
// for it. Whatever a refusal quotes comes out as JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "regard/core/error.h"
#include "regard/view/imported_weights.h"
#include "view/request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regard;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parsed = view::parse_trace_request(text, 100);
  if (const auto* refusal = std::get_if<view::Refusal>(&parsed)) {
    const auto json = nlohmann::json::parse(view::to_json(*refusal));
    if (refusal->status < 400 || json["error"]["code"] != refusal->code) {
      std::abort();
    }
  } else if (std::get<view::TraceRequest>(parsed).text.size() > 400) {
    std::abort();
  }
  // Whoever is let in must have come by one of our names.
  const auto stranger =
      view::refuse_stranger({text, text, "", false}, "box.lan");
  if (!stranger && text.find("evil") != std::string::npos) std::abort();
  (void)view::small_number(text);
  (void)view::small_range(text);
  try {
    const view::Tokens tokens = view::parse_tokens(text, "input");
    if (tokens.source.empty()) std::abort();
  } catch (const ParseError&) {
  }
  return 0;
}
