// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/example_task.h"

#include <sstream>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/tasks/histories.h"
#include "regard/tasks/translation_data.h"
#include "regard/text/tokenizer.h"
#include "regard/train/batches.h"

namespace regard::tasks {
namespace {

// Of texts, one after the other.
class TextHash {
 public:
  void add(std::int64_t value) {
    hash_ = (hash_ ^ static_cast<std::uint64_t>(value)) * 0x100000001B3u;
  }
  void add_text(std::span<const std::int32_t> text) {
    for (const std::int32_t token : text) add(token);
    add(0xFFFFFFFF);
  }
  std::string summary(std::int64_t examples) const {
    std::ostringstream out;
    out << examples << " examples (hash " << std::hex << hash_ << ")";
    return out.str();
  }

 private:
  std::uint64_t hash_ = 0;
};

}  // namespace

ExampleTask::ExampleTask(ExampleTaskParts parts, std::uint64_t seed,
                         Threads threads)
    : parts_(std::move(parts)),
      parameters_(nn::initial_parameters(parts_.parameters, seed)),
      threads_(threads) {
  constexpr std::int64_t kTokens = 4096;  // of a batch of validation
  held_out_batches_ =
      train::make_batches(parts_.held_out_lengths, {.tokens = kTokens}, 0);
}

void ExampleTask::begin_with(StateDict values) {
  for (const auto& [name, tensor] : values) {
    const auto found = parameters_.find(name);
    require(found != parameters_.end(), "ExampleTask::begin_with",
            "there must be no ", name, ": the task has no such parameter");
    require(tensor.dtype() == DType::kFloat32 &&
                tensor.shape() == found->second.shape(),
            "ExampleTask::begin_with", name, " must be float32 ",
            ShapeText{found->second.shape()}, "; it is ",
            to_string(tensor.dtype()), " ", ShapeText{tensor.shape()});
  }
  for (auto& [name, tensor] : values) parameters_[name] = std::move(tensor);
}

nn::LossSum ExampleTask::loss_and_gradients(
    std::span<const std::int64_t> examples, std::uint64_t seed,
    StateDict& gradients) {
  nn::prepare_gradients(parameters_, gradients);
  autograd::Tape tape(autograd::Record::kYes, threads_, pool_, compute_);
  nn::Pass pass(tape, parameters_, &gradients, nn::Mode::kTraining, seed);
  const nn::LossSum sum = parts_.loss(pass, Part::kTraining, examples, seed);
  tape.backward();
  return sum;
}

nn::LossSum ExampleTask::validate() {
  nn::LossSum sum;
  for (const std::vector<std::int64_t>& batch : held_out_batches_) {
    autograd::Tape tape(autograd::Record::kNo, threads_, pool_);
    nn::Pass pass(tape, parameters_);
    sum += parts_.loss(pass, Part::kHeldOut, batch, 0);
  }
  return sum;
}

Split split_examples(std::span<const std::string> keys, double share,
                     std::uint64_t seed) {
  require(share >= 0 && share < 1, "split_examples",
          "the share must be in [0, 1); got ", share);
  // 2^32 * share, so that a word of the generator is below it that often.
  const auto bound = static_cast<std::uint64_t>(share * 4294967296.0);
  Split split;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t hash = hash_of(keys[i]);
    const PhiloxCounter words =
        philox({static_cast<std::uint32_t>(hash),
                static_cast<std::uint32_t>(hash >> 32), 0x68656C64, 0},
               seed);
    (words[0] < bound ? split.held_out : split.training)
        .push_back(static_cast<std::int64_t>(i));
  }
  return split;
}

nn::PackedTokens pack(std::span<const std::vector<std::int32_t>> texts,
                      std::span<const std::int64_t> examples) {
  nn::PackedTokens packed;
  for (const std::int64_t example : examples) {
    packed.append(texts[static_cast<std::size_t>(example)]);
  }
  return packed;
}

void drop_tokens(nn::PackedTokens& packed, float rate, std::uint64_t seed) {
  if (rate == 0) return;
  constexpr std::uint64_t kOwn = 0x746F6B656E;  // apart from the layers' own
  Random random(seed ^ kOwn);
  for (std::int32_t& token : packed.tokens) {
    if (random.uniform() < rate && token != text::kBegin) {
      token = text::kUnknown;
    }
  }
}

std::vector<std::int64_t> lengths_of(
    std::span<const std::vector<std::int32_t>> texts) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(texts.size());
  for (const auto& text : texts) lengths.push_back(std::ssize(text));
  return lengths;
}

std::string summary_of(std::span<const std::vector<std::int32_t>> texts,
                       std::span<const std::int32_t> targets) {
  TextHash hash;
  for (const auto& text : texts) hash.add_text(text);
  for (const std::int32_t target : targets) hash.add(target);
  return hash.summary(std::ssize(texts));
}

std::string summary_of(const Histories& histories) {
  TextHash hash;
  for (const ItemList history : histories) hash.add_text(history);
  return hash.summary(std::ssize(histories));
}

std::string summary_of(const nn::PackedTokens& texts) {
  TextHash hash;
  for (std::int64_t i = 0; i < texts.sequences(); ++i) {
    hash.add_text(texts.sequence(i));
  }
  return hash.summary(texts.sequences());
}

}  // namespace regard::tasks
