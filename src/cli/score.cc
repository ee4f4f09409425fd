// SPDX-License-Identifier: Apache-2.0
// regard score: BLEU and chrF of translations, ROUGE of summaries.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/rouge_report.h"
#include "cli/screen.h"
#include "cli/usage_error.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/score.h"
#include "regard/text/lines.h"

namespace regard::cli {
namespace {

struct ScoreFlags {
  std::string hypotheses;
  std::string references;
  std::string metric = "bleu";
  std::string tokens;
  bool lowercase = false;
  bool json = false;
};

constexpr const char* kFooter =
    R"(Line n of one file is compared with line n of the other. The numbers are those
of sacreBLEU for the same tokenizer: 13a, the standard; zh, where each Chinese
character is a word; none, for text that is already tokenized.

--metric rouge prints ROUGE-1, ROUGE-2 and ROUGE-L, averaged over the lines, as
the package rouge-score computes them without stemming: words are letters a-z
and digits. With --tokenize zh, each Chinese character is a word.

Examples:
  regard score output.de reference.de
  regard score output.zh reference.zh --tokenize zh
  regard score output.tok reference.tok --tokenize none --lowercase
  regard score --metric rouge summaries.txt references.txt)";

void show_rouge(const ScoreFlags& flags, const text::Pairs& pairs) {
  const bool zh = flags.tokens == "zh";
  const tasks::RougeScore rouge = tasks::rouge(
      pairs.sources, pairs.targets,
      {zh ? tasks::ScoreTokens::kZh : tasks::ScoreTokens::kRouge, zh});
  print(rouge_report(rouge, flags.json));
}

void run_score(const ScoreFlags& flags) {
  if (flags.metric == "rouge" &&
      (flags.lowercase || (!flags.tokens.empty() && flags.tokens != "zh"))) {
    throw UsageError(
        "--metric rouge goes with no --tokenize but zh, and not with "
        "--lowercase: its letters are small");
  }
  const auto pairs = text::read_pairs(flags.hypotheses, flags.references);
  require(!pairs.sources.empty(), "score", "'", flags.hypotheses,
          "' has no lines");
  if (flags.metric == "rouge") return show_rouge(flags, pairs);
  tasks::ScoreOptions options;
  options.lowercase = flags.lowercase;
  options.tokens = flags.tokens == "zh"     ? tasks::ScoreTokens::kZh
                   : flags.tokens == "none" ? tasks::ScoreTokens::kNone
                                            : tasks::ScoreTokens::k13a;
  const tasks::BleuScore bleu =
      tasks::bleu(pairs.sources, pairs.targets, options);
  const double chrf = tasks::chrf(pairs.sources, pairs.targets, options);
  if (flags.json) {
    print(Json{{"bleu", bleu.score},
               {"precisions", bleu.precisions},
               {"brevity_penalty", bleu.brevity_penalty},
               {"hypothesis_length", bleu.hypothesis_length},
               {"reference_length", bleu.reference_length},
               {"chrf", chrf},
               {"tokenize", flags.tokens.empty() ? "13a" : flags.tokens},
               {"lowercase", flags.lowercase}}
              .dump() +
          "\n");
    return;
  }
  const auto& p = bleu.precisions;
  print(fmt::format(
      "BLEU {:.2f}  {:.1f}/{:.1f}/{:.1f}/{:.1f}  brevity {:.3f}  words {} / "
      "{}\nchrF {:.2f}\n",
      bleu.score, p[0], p[1], p[2], p[3], bleu.brevity_penalty,
      bleu.hypothesis_length, bleu.reference_length, chrf));
}

}  // namespace

Command add_score(App& program) {
  const auto flags = std::make_shared<ScoreFlags>();
  App* app = program.add_subcommand(
      "score", "BLEU and chrF of translations, ROUGE of summaries");
  app->footer(kFooter);
  app->add_option("HYPOTHESES", flags->hypotheses, "The output of a model")
      ->type_name("FILE")
      ->required();
  app->add_option("REFERENCES", flags->references, "The reference texts")
      ->type_name("FILE")
      ->required();
  app->add_option("--metric", flags->metric, "bleu (with chrF) or rouge")
      ->check(member_of({"bleu", "rouge"}))
      ->capture_default_str();
  app->add_option("--tokenize", flags->tokens,
                  "Tokenizer of the metric; for BLEU 13a if not given")
      ->check(member_of({"13a", "none", "zh"}));
  app->add_flag("--lowercase", flags->lowercase, "Convert to lower case first");
  app->add_flag("--json", flags->json, "All numbers in full, as JSON");
  return {app, [flags] { run_score(*flags); }};
}

}  // namespace regard::cli
