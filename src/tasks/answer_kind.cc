// SPDX-License-Identifier: Apache-2.0
#include "tasks/answer_kind.h"

#include <string>

#include "io/read_file.h"
#include "json/json.h"
#include "regard/tasks/answerer.h"
#include "text/field.h"
#include "text/tokenizers.h"

namespace regard::tasks {

AnswerKind find_answer_kind(const std::filesystem::path& folder) {
  constexpr const char* kWhere = "find_answer_kind";
  const std::filesystem::path config = folder / "config.json";
  const std::string where = std::string(kWhere) + ": '" + config.string() + "'";
  const auto json = text::parse_json(io::read_regular(config, kWhere), where);
  const text::Field file(json, where);
  const std::string kind = file.text("kind", "");
  if (kind == kAnswererKind) return AnswerKind::kKnown;
  if (kind == kSpanAnswererKind) return AnswerKind::kSpans;
  if (kind == kChoiceAnswererKind) return AnswerKind::kChoices;
  file.fail("must be of the kind '", kAnswererKind, "', '", kSpanAnswererKind,
            "' or '", kChoiceAnswererKind, "'; it is ", io::in_quotes(kind));
}

}  // namespace regard::tasks
