// SPDX-License-Identifier: Apache-2.0
// regard train recommend: a recommender, from who took what and when.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "cli/checks.h"
#include "cli/encoder_flags.h"
#include "cli/scratch_folder.h"
#include "cli/screen.h"
#include "cli/train.h"
#include "cli/training_folder.h"
#include "cli/usage_error.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/recommendation_score.h"
#include "regard/tasks/recommender.h"

namespace regard::cli {
namespace {

constexpr const char* kCommand = "train recommend";

struct TrainRecommendFlags {
  std::string interactions;
  tasks::InteractionFormat format;
  bool in_order = false;
  bool no_header = false;
  EncoderFlags encoder;
  std::string loss = "softmax";
  std::int64_t negatives = 1;
  LearningFlags learning;
};

constexpr const char* kFooter =
    R"(A log is a table of users, items and times, in UTF-8; its extension says which:
  .tsv    a header and fields with tabs between them:   user<TAB>item<TAB>time
                                                        ann<TAB>tea<TAB>1700000000
  .csv    the same with commas and quotes:              ann,"tea, green",2024-05-31
  .jsonl  an object per line:       {"user": "ann", "item": "tea", "time": 17}
Times are numbers, or dates with the year first. --in-order: there is no time
column, the lines are sorted already. --no-header: lines are `user item` in
order of time, or `user item time`, with blanks between the fields (tabs in a
.tsv, commas in a .csv). An invalid line is an error that names the line.

Users with fewer than --min-interactions are left out. For every other user, the
last item is held out for the test and the one before it for validation; the
rest is the training data. If a user has fewer than three items, all are used
for training.

The model reads the last --max-length items of a history with causal self
attention (SASRec). --loss softmax is the cross entropy of the next item over
all items; --loss binary is that against --negatives random items, as in SASRec.

The folder becomes a model for `regard recommend`: config.json,
model.safetensors, items.txt, interactions.tsv, and a model card, README.md. Its
folder `training` holds what --resume needs. Ctrl-C saves and ends; once there
is a milestone, it also writes the model so far. The same command gives the same
bits, for any number of threads, also if it was stopped and resumed.

Examples:
  regard sample recommend --out series
  regard train recommend --interactions series/log.tsv --out series-model
  regard train recommend --interactions ratings.csv --user-column userId \
      --item-column movieId --time-column timestamp --out films
  regard train recommend --interactions Video.txt --no-header \
      --min-interactions 1 --out games)";

void add_data(App& app, TrainRecommendFlags& f) {
  const char* group = "Data";
  app.add_option("--interactions", f.interactions, "Users, items and times")
      ->type_name("FILE")
      ->required()
      ->group(group);
  app.add_option("--user-column", f.format.user, "Name of the users' column")
      ->capture_default_str()
      ->group(group);
  app.add_option("--item-column", f.format.item, "Name of the items' column")
      ->capture_default_str()
      ->group(group);
  app.add_option("--time-column", f.format.time, "Name of the times' column")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--in-order", f.in_order,
               "There is no time column: the lines are sorted already")
      ->group(group);
  app.add_flag("--no-header", f.no_header,
               "Lines are `user item`, or `user item time`")
      ->group(group);
  app.add_option("--min-interactions", f.format.min_interactions,
                 "Users with fewer are left out")
      ->check(whole_between(1, 1000000))
      ->capture_default_str()
      ->group(group);
  add_folder_flags(app, f.learning);
}

tasks::Interactions load_data(const TrainRecommendFlags& f) {
  tasks::InteractionFormat format = f.format;
  format.has_header = !f.no_header;
  if (f.in_order) format.time.clear();
  format.scratch = scratch_folder(f.interactions, f.learning.out);
  tasks::Interactions data = tasks::read_interactions(f.interactions, format);
  const auto held_out =
      tasks::held_out_items(data, tasks::HeldOut::kTest).size();
  std::int64_t count = 0;
  for (const std::int64_t learnt : data.counts) count += learnt;
  std::fprintf(stderr,
               "%zu users (%lld left out), %zu items; %lld interactions to "
               "learn from, %zu users with two held out\n",
               data.users.size(), static_cast<long long>(data.users_left_out),
               data.items.size(), static_cast<long long>(count), held_out);
  require(data.items.size() >= 2, kCommand,
          "there must be at least two items to choose from; '", f.interactions,
          "' has ", data.items.size(), ", and users with fewer than ",
          f.format.min_interactions, " interactions are left out");
  return data;
}

tasks::RecommenderConfig config_of(const TrainRecommendFlags& f,
                                   std::int64_t items) {
  tasks::RecommenderConfig config;
  config.encoder = encoder_config(f.encoder, items);
  config.encoder.pooling = nn::Pooling::kLast;
  config.loss = f.loss == "binary" ? tasks::RecommendationLoss::kBinary
                                   : tasks::RecommendationLoss::kSoftmax;
  config.negatives = f.negatives;
  return config;
}

std::map<std::string, std::string> settings_of(
    const TrainRecommendFlags& f, const tasks::RecommenderConfig& config,
    const tasks::Interactions& data) {
  std::map<std::string, std::string> settings;
  const auto json = Json::parse(tasks::config_to_json(config));
  add_settings(json.at("encoder").dump(), settings);
  settings["--loss"] = f.loss;
  if (f.loss == "binary") {
    settings["--negatives"] = std::to_string(f.negatives);
  }
  settings["interactions"] = tasks::summary_of(data.histories);
  return settings;
}

std::string validation_line(const std::filesystem::path& folder,
                            const tasks::Interactions& data,
                            const LearningFlags& f) {
  const auto which = tasks::HeldOut::kValidation;
  if (tasks::held_out_items(data, which).empty()) return "";
  const tasks::Recommender model = tasks::Recommender::load(folder);
  const tasks::RecommendationScore score =
      tasks::score_recommender(model, data, which, 1, {.count = f.threads});
  return fmt::format(
      "Validation ({} users): HR@10 {:.4f}, NDCG@10 {:.4f} among 100 others; "
      "HR@10 {:.4f}, NDCG@10 {:.4f} among all items\n",
      score.users, score.sampled.hit_rate, score.sampled.ndcg,
      score.full.hit_rate, score.full.ndcg);
}

void run(const TrainRecommendFlags& f, Ranks& ranks) {
  check(f.learning);
  encoder_config(f.encoder, 1);
  if (f.no_header && f.in_order) {
    throw UsageError(
        "--in-order goes with a header; with --no-header, lines of two fields "
        "are in order of time");
  }
  const TrainingFolder folder(f.learning, kCommand, ranks);
  const tasks::Interactions data = load_data(f);
  const tasks::RecommenderConfig config = config_of(f, std::ssize(data.items));
  tasks::ExampleTask task = tasks::make_recommendation_task(
      config, data, f.learning.seed, {.count = f.learning.threads});
  std::fprintf(stderr, "%lld parameters\n",
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create();
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings_of(f, config, data), "items",
                 [&](const StateDict& weights) {
                   tasks::save_recommender(folder.path(), config, data, weights,
                                           f.learning.stored());
                 });
  if (!ranks.first()) return;
  const nn::EncoderConfig& e = config.encoder;
  folder.finish(
      outcome, validation_line(folder.path(), data, f.learning),
      {"Recommender",
       fmt::format("- Data: {}; {} users, {} items\n"
                   "- Model: causal self attention, {}, the last {} items of a "
                   "history; {} parameters; dropout {}; loss {}\n",
                   std::filesystem::path(f.interactions).filename().string(),
                   data.users.size(), e.vocab, size_text(e), e.max_length,
                   parameter_count(outcome.result.weights), e.dropout, f.loss),
       "item",
       "regard recommend --model FOLDER --user NAME\n"
       "    regard recommend --model FOLDER --score",
       "It knows what came after what in its data, and nothing else. The "
       "folder holds the names and histories of the users; leave out "
       "interactions.tsv to give the model away without them."});
}

}  // namespace

Command add_train_recommend(App& train, Ranks& ranks) {
  const auto flags = std::make_shared<TrainRecommendFlags>();
  flags->format.min_interactions = 5;
  EncoderFlags& encoder = flags->encoder;
  encoder.dim = 64;
  encoder.heads = 1;
  encoder.ffn = 64;
  encoder.activation = "relu";
  encoder.positions = "learned";
  encoder.max_length = 50;
  encoder.dropout = 0.3;
  LearningFlags& learning = flags->learning;
  learning.updates = 0;
  learning.epochs = 30;
  learning.schedule = "constant";
  learning.rate = 0.001;
  learning.warmup = 100;
  learning.average = 5;
  learning.batch_tokens = 1024;
  App* app = train.add_subcommand(
      "recommend", "A recommender, from interactions of users and items");
  app->footer(kFooter);
  add_data(*app, *flags);
  add_layer_flags(*app, encoder);
  app->add_option("--max-length", encoder.max_length,
                  "Maximum number of items of a history, the last ones")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group("Model");
  app->add_option("--loss", flags->loss, "Loss of the next item")
      ->check(member_of({"softmax", "binary"}))
      ->capture_default_str()
      ->group("Model");
  app->add_option("--negatives", flags->negatives,
                  "With --loss binary: random items per position")
      ->check(whole_between(1, 10000))
      ->capture_default_str()
      ->group("Model");
  add_learning_flags(*app, learning);
  return {app, [flags, &ranks] { run(*flags, ranks); }};
}

}  // namespace regard::cli
