// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/translation_task.h"

#include <algorithm>

#include "regard/train/batches.h"

namespace regard::tasks {
namespace {

std::vector<std::int64_t> lengths_of(const TranslationData& data) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(static_cast<std::size_t>(data.size()));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    // A source has its end already, a target gets a token more.
    lengths.push_back(
        std::max(data.sources.length(i), data.targets.length(i) + 1));
  }
  return lengths;
}

}  // namespace

TranslationTask::TranslationTask(nn::Transformer& model,
                                 const TranslationData& training,
                                 const TranslationData& held_out)
    : model_(model),
      training_(training),
      held_out_(held_out),
      lengths_(lengths_of(training)) {
  constexpr std::int64_t kTokens = 4096;  // of a batch of validation
  held_out_batches_ =
      train::make_batches(lengths_of(held_out), {.tokens = kTokens}, 0);
}

nn::LossSum TranslationTask::loss_and_gradients(
    std::span<const std::int64_t> examples, std::uint64_t seed,
    StateDict& gradients) {
  return model_.loss_and_gradients(make_translation_batch(training_, examples),
                                   seed, gradients);
}

nn::LossSum TranslationTask::validate() {
  nn::LossSum sum;
  for (const std::vector<std::int64_t>& batch : held_out_batches_) {
    sum += model_.loss(make_translation_batch(held_out_, batch));
  }
  return sum;
}

}  // namespace regard::tasks
