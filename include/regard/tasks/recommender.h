// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/core/threads.h"
#include "regard/nn/encoder.h"
#include "regard/ops/weight_storage.h"
#include "regard/tasks/example_task.h"
#include "regard/tasks/interactions.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// What a recommender learns at each place of a history.
enum class RecommendationLoss {
  kSoftmax,  // the next item among all items: cross entropy
  kBinary,   // it, and sampled items that it is not: binary cross entropy
};

struct RecommenderConfig {
  // vocab is the number of items, pooling kLast. Histories are read by their
  // last max_length items.
  nn::EncoderConfig encoder;
  // For training alone.
  RecommendationLoss loss = RecommendationLoss::kSoftmax;
  std::int64_t negatives = 1;  // of kBinary, for each place
};

// Causal self attention over what a user took, as in SASRec (Kang and McAuley,
// 2018): the score of an item is the last place's vector times the item's
// embedding. The task learns the item after each place; a history is never
// padded. Negatives are uniform over the items that are not in what is learnt
// of the user, a pure function of the seed. The loss of validation is that of
// the items held out for it. Borrows the interactions.
ExampleTask make_recommendation_task(const RecommenderConfig& config,
                                     const Interactions& interactions,
                                     std::uint64_t seed, Threads threads = {});

struct Recommendation {
  std::int32_t item = 0;
  float score = 0;
};

// What an item of the history weighed for one that is recommended.
struct HistoryWeight {
  std::int32_t item = 0;
  // How much lower the score is without it; below 0 it spoke against. The only
  // item of a history weighs the whole score.
  float occlusion = 0;
  // Attention rollout: its share of what all layers looked at.
  float rollout = 0;
};

// A model that says what comes next. It is a folder: config.json,
// model.safetensors, items.txt (a name per line), and where it was trained
// interactions.tsv (user, item; in order of time).
class Recommender {
 public:
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken or is inconsistent with the other files.
  // Matrices of products become what `weights` says; the table of items, which
  // is looked up and multiplied, norms and biases stay float32. kAsStored is
  // for folders that quantize_trained() wrote: InvalidArgument for any other.
  static Recommender load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  Recommender(RecommenderConfig config, std::vector<std::string> items,
              StateDict weights,
              ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  ~Recommender();
  Recommender(Recommender&&) noexcept;
  Recommender& operator=(Recommender&&) noexcept;

  const RecommenderConfig& config() const;
  // Of all weights, in memory.
  std::size_t weight_bytes() const;
  const std::vector<std::string>& items() const;
  // -1 for a name that is no item's.
  std::int32_t item(std::string_view name) const;

  // Calls visit(i, scores) once for each history, with a score for every item,
  // from several threads and in no order. The bits of the scores depend on no
  // other history and on no number of threads. No history may be empty.
  void score(std::span<const ItemList> histories,
             const std::function<void(std::size_t i,
                                      std::span<const float> scores)>& visit,
             Threads threads = {}) const;

  // The items with the highest scores that are not in the history.
  std::vector<Recommendation> recommend(std::span<const std::int32_t> history,
                                        std::int64_t top,
                                        Threads threads = {}) const;

  // Why `item`: for each item of the history that is read, in its order.
  std::vector<HistoryWeight> explain(std::span<const std::int32_t> history,
                                     std::int32_t item,
                                     Threads threads = {}) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The `top` items with the highest scores that are not in `seen`, the first of
// equals first.
std::vector<Recommendation> best_items(std::span<const float> scores,
                                       std::span<const std::int32_t> seen,
                                       std::int64_t top);

void save_recommender(const std::filesystem::path& folder,
                      const RecommenderConfig& config,
                      const Interactions& interactions,
                      const StateDict& weights, DType stored = DType::kFloat32);

// The log that a model was trained with; `scratch` as in InteractionFormat.
// Throws IoError where its folder does
// not hold it, ParseError where it names other items than the model's.
Interactions load_interactions(const std::filesystem::path& folder,
                               const Recommender& model,
                               const std::filesystem::path& scratch = {});

// The config as its file has it.
std::string config_to_json(const RecommenderConfig& config);

}  // namespace regard::tasks
