// SPDX-License-Identifier: Apache-2.0
#include "cli/rouge_report.h"

#include <fmt/format.h>

#include "json/json.h"

namespace regard::cli {
namespace {

Json to_json(const tasks::RougeScore::Part& part) {
  return {
      {"precision", part.precision}, {"recall", part.recall}, {"f1", part.f1}};
}

}  // namespace

std::string rouge_report(const tasks::RougeScore& rouge, bool json) {
  if (json) {
    return Json{{"rouge1", to_json(rouge.rouge1)},
                {"rouge2", to_json(rouge.rouge2)},
                {"rougeL", to_json(rouge.rougeL)}}
               .dump() +
           "\n";
  }
  const auto line = [](const char* name, const tasks::RougeScore::Part& part) {
    return fmt::format("{} {:.2f}  precision {:.2f}  recall {:.2f}\n", name,
                       part.f1, part.precision, part.recall);
  };
  return line("ROUGE-1", rouge.rouge1) + line("ROUGE-2", rouge.rouge2) +
         line("ROUGE-L", rouge.rougeL);
}

}  // namespace regard::cli
