// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/recommender.h"

#include <algorithm>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "io/atomic_file.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/text/lines.h"
#include "regard/train/batches.h"
#include "tasks/model_folder.h"
#include "tasks/recommender_parts.h"

namespace regard::tasks {
namespace fs = std::filesystem;

namespace {

constexpr const char* kKind = "regard recommender";
constexpr const char* kLoad = "Recommender::load";
constexpr const char* kItemsFile = "items.txt";
constexpr const char* kInteractionsFile = "interactions.tsv";

constexpr const char* kSave = "save_recommender";

}  // namespace

Recommender::Recommender(RecommenderConfig config,
                         std::vector<std::string> items, StateDict weights,
                         ops::WeightStorage storage) {
  constexpr const char* kWhere = "Recommender";
  require(std::ssize(items) == config.encoder.vocab, kWhere, "the model has ",
          config.encoder.vocab, " items, the names are ", items.size());
  nn::Encoder encoder = recommender_encoder(config);
  nn::PackedParameters packed(recommender_specs(encoder), std::move(weights),
                              storage, kWhere);
  std::unordered_map<std::string, std::int32_t> numbers;
  for (std::size_t i = 0; i < items.size(); ++i) {
    require(numbers.emplace(items[i], static_cast<std::int32_t>(i)).second,
            kWhere, "no item may be there twice; '", items[i], "' is");
  }
  parts_ = std::make_unique<Parts>(Parts{std::move(config), std::move(items),
                                         std::move(numbers), std::move(packed),
                                         std::move(encoder)});
}

Recommender::~Recommender() = default;
Recommender::Recommender(Recommender&&) noexcept = default;
Recommender& Recommender::operator=(Recommender&&) noexcept = default;

const RecommenderConfig& Recommender::config() const { return parts_->config; }
std::size_t Recommender::weight_bytes() const {
  return parts_->weights.bytes();
}
const std::vector<std::string>& Recommender::items() const {
  return parts_->items;
}
std::int32_t Recommender::item(std::string_view name) const {
  const auto found = parts_->numbers.find(std::string(name));
  return found == parts_->numbers.end() ? -1 : found->second;
}

ItemList Recommender::Parts::readable(ItemList history) const {
  require(!history.empty(), "Recommender", "a history must hold an item");
  for (const std::int32_t item : history) {
    require(item >= 0 && item < config.encoder.vocab, "Recommender",
            "an item must lie in 0 .. ", config.encoder.vocab - 1, "; got ",
            item);
  }
  const auto most = static_cast<std::size_t>(config.encoder.max_length);
  return history.last(std::min(history.size(), most));
}

void Recommender::score(
    std::span<const ItemList> histories,
    const std::function<void(std::size_t, std::span<const float>)>& visit,
    Threads threads) const {
  constexpr std::int64_t kTokens = 2048;  // at once
  std::vector<std::int64_t> lengths;
  lengths.reserve(histories.size());
  for (const ItemList history : histories) {
    lengths.push_back(std::ssize(parts_->readable(history)));
  }
  autograd::MemoryPool pool;
  for (const std::vector<std::int64_t>& batch :
       train::make_batches(lengths, {.tokens = kTokens}, 0)) {
    autograd::Tape tape(autograd::Record::kNo, threads, pool);
    nn::Pass pass(tape, parts_->weights);
    nn::PackedTokens packed;
    for (const std::int64_t i : batch) {
      packed.append(parts_->readable(histories[static_cast<std::size_t>(i)]));
    }
    const nn::Encoder& encoder = parts_->encoder;
    const nn::Variable last =
        encoder.pool(pass,
                     encoder.encode(pass, encoder.embed(pass, packed), packed,
                                    mask::causal()),
                     packed);
    const nn::Variable scores =
        autograd::linear(tape, last, pass.parameter("embedding.weight"), {});
    parallel_for(threads, std::ssize(batch), [&](std::int64_t i) {
      visit(static_cast<std::size_t>(batch[static_cast<std::size_t>(i)]),
            {scores.value().at(i), parts_->items.size()});
    });
  }
}

std::vector<Recommendation> best_items(std::span<const float> scores,
                                       std::span<const std::int32_t> seen,
                                       std::int64_t top) {
  const std::unordered_set<std::int32_t> known(seen.begin(), seen.end());
  const auto better = [](const Recommendation& a, const Recommendation& b) {
    return a.score != b.score ? a.score > b.score : a.item < b.item;
  };
  if (top == 0) return {};
  // A heap with the worst of the best on top. Most items are below it, and are
  // passed over by the block; an equal one comes later, and is no better.
  constexpr std::size_t kBlock = 64;
  std::vector<Recommendation> best;
  const auto consider = [&](std::size_t i) {
    const Recommendation one{static_cast<std::int32_t>(i), scores[i]};
    const bool full = std::ssize(best) == top;
    if (full && !better(one, best.front())) return;
    if (known.contains(one.item)) return;
    if (full) {
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back(one);
    std::push_heap(best.begin(), best.end(), better);
  };
  for (std::size_t i = 0; i < scores.size(); i += kBlock) {
    const std::size_t end = std::min(scores.size(), i + kBlock);
    if (end - i == kBlock && std::ssize(best) == top) {
      const float worst = best.front().score;
      int above = 0;
      for (std::size_t j = 0; j < kBlock; ++j) above += scores[i + j] > worst;
      if (above == 0) continue;
    }
    for (std::size_t j = i; j < end; ++j) consider(j);
  }
  std::sort(best.begin(), best.end(), better);
  return best;
}

std::vector<Recommendation> Recommender::recommend(
    std::span<const std::int32_t> history, std::int64_t top,
    Threads threads) const {
  std::vector<Recommendation> out;
  score(
      {&history, 1},
      [&](std::size_t, std::span<const float> scores) {
        out = best_items(scores, history, top);
      },
      threads);
  return out;
}

std::vector<HistoryWeight> Recommender::explain(
    std::span<const std::int32_t> history, std::int32_t item,
    Threads threads) const {
  require(item >= 0 && item < parts_->config.encoder.vocab,
          "Recommender::explain", "an item must lie in 0 .. ",
          parts_->config.encoder.vocab - 1, "; got ", item);
  const ItemList kept = parts_->readable(history);
  const std::vector<std::int32_t> read(kept.begin(), kept.end());
  // The history, and the history without each of its items.
  std::vector<std::vector<std::int32_t>> variants = {read};
  for (std::size_t i = 0; i < read.size() && read.size() > 1; ++i) {
    variants.push_back(read);
    variants.back().erase(variants.back().begin() +
                          static_cast<std::ptrdiff_t>(i));
  }
  std::vector<float> scores(read.size() + 1);  // without anything: 0
  const std::vector<ItemList> lists(variants.begin(), variants.end());
  score(
      lists,
      [&](std::size_t i, std::span<const float> all) {
        scores[i] = all[static_cast<std::size_t>(item)];
      },
      threads);
  autograd::Tape tape(autograd::Record::kNo, threads);
  nn::Pass pass(tape, parts_->weights);
  const nn::Encoder& encoder = parts_->encoder;
  const nn::PackedTokens one{read, {0, std::ssize(read)}};
  const std::vector<double> shares =
      encoder.attention(pass, encoder.embed(pass, one), one, mask::causal())
          .rollout();
  std::vector<HistoryWeight> out;
  for (std::size_t i = 0; i < read.size(); ++i) {
    out.push_back(
        {read[i], scores[0] - scores[i + 1], static_cast<float>(shares[i])});
  }
  return out;
}

Recommender Recommender::load(const fs::path& folder,
                              ops::WeightStorage weights) {
  ModelFolder model = load_model_without_tokenizer(folder, kKind, kLoad);
  weights = model.weights_as(weights, kLoad);
  RecommenderConfig config;
  config.encoder = encoder_from(model.field()["encoder"]);
  io::check_regular(folder / kItemsFile, kLoad);
  return fitted(folder, kLoad, [&] {
    return Recommender(std::move(config), text::read_lines(folder / kItemsFile),
                       std::move(model.weights), weights);
  });
}

std::string config_to_json(const RecommenderConfig& config) {
  return Json{{"kind", kKind}, {"encoder", to_json(config.encoder)}}.dump();
}

void save_recommender(const fs::path& folder, const RecommenderConfig& config,
                      const Interactions& interactions,
                      const StateDict& weights, DType stored) {
  io::AtomicFile log(folder / kInteractionsFile, kSave);
  write_interactions(interactions,
                     [&](std::string_view part) { log.write(part); });
  log.commit();
  io::AtomicFile items(folder / kItemsFile, kSave);
  std::string names;
  for (const std::string& item : interactions.items) names += item + "\n";
  items.write(names);
  items.commit();
  save_model_folder(folder, Json::parse(config_to_json(config)), weights,
                    stored);
}

Interactions load_interactions(const fs::path& folder, const Recommender& model,
                               const fs::path& scratch) {
  const fs::path path = folder / kInteractionsFile;
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw_io_error("load_interactions", "the model in '", folder.string(),
                   "' came without ", kInteractionsFile,
                   ", which holds its users' histories");
  }
  Interactions data = read_interactions(path, {.time = "", .scratch = scratch});
  if (data.items != model.items()) {
    throw_parse_error("load_interactions", "'", path.string(),
                      "' must name the items of the model, as often as when it "
                      "was trained");
  }
  return data;
}

}  // namespace regard::tasks
