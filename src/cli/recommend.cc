// SPDX-License-Identifier: Apache-2.0
// regard recommend: what comes next.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/scratch_folder.h"
#include "cli/screen.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/recommendation_score.h"
#include "regard/tasks/recommender.h"

namespace regard::cli {
namespace {

struct RecommendFlags {
  std::string model, user, history;
  std::int64_t top = 10;
  bool why = false;
  bool score = false;
  std::string on = "test";
  std::uint64_t seed = 1;
  bool json = false;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
  int threads = 0;
};

constexpr const char* kFooter =
    R"(--history names items in the order in which they were taken, separated by
commas; --user uses the whole history of a user in the training data. The output
has a line for each recommended item: item, tab, score; items of the history are
not recommended. --why shows which items of the history mattered: how much lower
the score is without the item (occlusion), and its share of the attention
(attention rollout). A name with a comma cannot be used in --history. --weights
applies to the layers; the item embeddings stay float32.

--score predicts the held-out item of each user: HR@10 and NDCG@10 among 100
random items that the user never took, chosen by --seed; then HR@10, NDCG@10 and
MRR among all items that the user did not take before, and coverage, the share
of the items that are in at least one user's top ten. Popularity is the
baseline. Items with equal scores count against a model.

Examples:
  regard recommend --history "Harbour 1, Harbour 2" --why
  regard recommend --model films --user 17 --top 5
  regard recommend --model films --score)";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::int32_t> history_named(const tasks::Recommender& model,
                                        std::string_view names) {
  std::vector<std::int32_t> history;
  for (;;) {
    const std::size_t comma = names.find(',');
    const std::string_view name = trimmed(names.substr(0, comma));
    const std::int32_t item = model.item(name);
    require(item >= 0, "recommend",
            "--history must name items of the model, which knows ",
            model.items().size(), ", such as '", model.items().front(),
            "'; it does not know '", on_one_line(name), "'");
    history.push_back(item);
    if (comma == std::string_view::npos) return history;
    names.remove_prefix(comma + 1);
  }
}

std::vector<std::int32_t> history_of_user(const tasks::Interactions& data,
                                          const std::string& user) {
  const auto found = std::find(data.users.begin(), data.users.end(), user);
  require(found != data.users.end(), "recommend",
          "--user must name one of the ", data.users.size(),
          " that the model was trained with; it is '", on_one_line(user), "'");
  const tasks::ItemList history =
      data.histories[static_cast<std::size_t>(found - data.users.begin())];
  return {history.begin(), history.end()};
}

void recommend(const tasks::Recommender& model, const RecommendFlags& flags,
               const std::vector<std::int32_t>& history) {
  const Threads threads{.count = flags.threads};
  const auto name = [&](std::int32_t item) {
    return model.items()[static_cast<std::size_t>(item)];
  };
  Json all = Json::array();
  std::string out;
  for (const auto& [item, score] :
       model.recommend(history, flags.top, threads)) {
    Json one = {{"item", name(item)}, {"score", score}};
    out += fmt::format("{}\t{:.4f}\n", name(item), score);
    if (flags.why) {
      one["why"] = Json::array();
      auto weights = model.explain(history, item, threads);
      for (const auto& weight : weights) {
        one["why"].push_back({{"item", name(weight.item)},
                              {"occlusion", weight.occlusion},
                              {"rollout", weight.rollout}});
      }
      // Those that weighed most, for a person to read.
      constexpr std::ptrdiff_t kShown = 5;
      std::stable_sort(weights.begin(), weights.end(),
                       [](const auto& a, const auto& b) {
                         return std::abs(a.occlusion) > std::abs(b.occlusion);
                       });
      if (std::ssize(weights) > kShown) weights.resize(kShown);
      for (const auto& weight : weights) {
        out += fmt::format("  {} occlusion {:+.4f}  rollout {:.4f}\n",
                           fitted(name(weight.item), 28), weight.occlusion,
                           weight.rollout);
      }
    }
    all.push_back(std::move(one));
  }
  print_written(flags.json ? all.dump() + "\n" : out);
}

Json json_of(const tasks::RecommendationScore& score) {
  return {
      {"sampled",
       {{"hr@10", score.sampled.hit_rate}, {"ndcg@10", score.sampled.ndcg}}},
      {"full",
       {{"hr@10", score.full.hit_rate},
        {"ndcg@10", score.full.ndcg},
        {"mrr", score.full.mrr},
        {"coverage", score.full.coverage}}}};
}

void score(const tasks::Recommender& model, const RecommendFlags& flags,
           const tasks::Interactions& data) {
  const auto which =
      flags.on == "valid" ? tasks::HeldOut::kValidation : tasks::HeldOut::kTest;
  const auto begin = std::chrono::steady_clock::now();
  const auto own = tasks::score_recommender(model, data, which, flags.seed,
                                            {.count = flags.threads});
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr, "%s\n",
               fmt::format("every item for {} users: {:.2f} s, {:.0f} users/s",
                           own.users, took.count(),
                           static_cast<double>(own.users) / took.count())
                   .c_str());
  const auto floor = tasks::score_popularity(data, which, flags.seed);
  if (flags.json) {
    return print(Json{{"users", own.users},
                      {"model", json_of(own)},
                      {"popularity", json_of(floor)}}
                     .dump() +
                 "\n");
  }
  std::string out = fmt::format(
      "{} users, {} items\n\n{:12}{:^16}  {:^34}\n{:12}{:>8}{:>8}  "
      "{:>8}{:>8}{:>8}{:>10}\n",
      own.users, data.items.size(), "", "among 100", "among all", "", "HR@10",
      "NDCG@10", "HR@10", "NDCG@10", "MRR", "coverage");
  const auto line = [&](const char* name, const tasks::RecommendationScore& s) {
    out += fmt::format(
        "{:12}{:>8.4f}{:>8.4f}  {:>8.4f}{:>8.4f}{:>8.4f}{:>9.1f}%\n", name,
        s.sampled.hit_rate, s.sampled.ndcg, s.full.hit_rate, s.full.ndcg,
        s.full.mrr, 100 * s.full.coverage);
  };
  line("model", own);
  line("popularity", floor);
  print(out);
}

void run(const RecommendFlags& flags) {
  const int asked = (flags.user.empty() ? 0 : 1) +
                    (flags.history.empty() ? 0 : 1) + (flags.score ? 1 : 0);
  if (asked != 1) {
    throw UsageError("give one of --history, --user and --score");
  }
  if (flags.score && flags.why) {
    throw UsageError("--why goes with --history or --user");
  }
  const std::string folder =
      flags.model.empty() ? bundled_model("series") : flags.model;
  const tasks::Recommender model =
      tasks::Recommender::load(folder, flags.weights);
  if (flags.model.empty()) {
    std::fputs(
        "(using the tiny bundled model, trained on generated readers of book "
        "series; --model names another)\n",
        stderr);
  }
  if (!flags.history.empty()) {
    return recommend(model, flags, history_named(model, flags.history));
  }
  std::error_code none;
  const tasks::Interactions data = tasks::load_interactions(
      folder, model,
      scratch_folder(std::filesystem::path(folder) / "interactions.tsv",
                     std::filesystem::temp_directory_path(none)));
  if (flags.score) return score(model, flags, data);
  recommend(model, flags, history_of_user(data, flags.user));
}

}  // namespace

Command add_recommend(App& program) {
  const auto flags = std::make_shared<RecommendFlags>();
  App* app = program.add_subcommand("recommend",
                                    "Recommend the next items after a history");
  app->footer(kFooter);
  app->add_option("--model", flags->model,
                  "Folder that `regard train recommend` made; if not given, a "
                  "tiny bundled one for book series")
      ->type_name("FOLDER");
  app->add_option("--history", flags->history,
                  "Items in order, separated by commas")
      ->type_name("ITEMS");
  app->add_option("--user", flags->user, "A user of the training data");
  app->add_option("--top", flags->top, "Items to recommend")
      ->check(whole_between(1, 1000000))
      ->capture_default_str();
  app->add_flag("--why", flags->why,
                "Show which items of the history mattered");
  app->add_flag("--score", flags->score, "Compare with the held-out items");
  app->add_option("--on", flags->on, "With --score: which held-out items")
      ->check(member_of({"valid", "test"}))
      ->needs("--score")
      ->capture_default_str();
  app->add_option("--seed", flags->seed,
                  "With --score: seed of the random items")
      ->needs("--score")
      ->capture_default_str();
  app->add_flag("--json", flags->json, "JSON");
  add_weights_flag(*app, flags->weights);
  app->add_option("--threads", flags->threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
