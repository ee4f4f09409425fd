// SPDX-License-Identifier: Apache-2.0
// fine_tuning_driver MODEL TABLE HEAD OUT: a pretrained encoder with the head
// of a safetensors file, head.weight and head.bias. Of all texts of a table as
// one batch, without dropout: the sum of the losses, its gradients (d.NAME),
// and the probabilities that a classifier of these weights gives.
#include <cstdio>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include "regard/io/safetensors.h"
#include "regard/tasks/classifier.h"
#include "regard/tasks/pretrained_encoder.h"

namespace regard {
namespace {

StateDict run(char** argv) {
  tasks::PretrainedEncoder encoder = tasks::load_pretrained_encoder(argv[1]);
  const tasks::LabelledTexts texts = tasks::read_labelled_texts(argv[2]);
  StateDict weights = encoder.weights;
  weights.merge(SafetensorsFile::open(argv[3]).state_dict());
  tasks::ClassifierConfig config;
  config.encoder = encoder.config;
  config.special_tokens = true;
  for (std::int64_t l = 0; l < weights.at("head.bias").size(); ++l) {
    config.labels.push_back(std::to_string(l));
  }
  const auto data = tasks::encode_texts(texts, *encoder.tokenizer, config);
  tasks::ExampleTask task = make_classification_task(config, data, {}, 1);
  task.begin_with(weights);
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  StateDict gradients, out;
  const nn::LossSum sum = task.loss_and_gradients(all, 1, gradients);
  out.emplace("loss", Tensor({static_cast<float>(sum.loss)}, {1}));
  for (auto& [name, gradient] : gradients) {
    out.emplace("d." + name, std::move(gradient));
  }
  const tasks::Classifier classifier(config, std::move(encoder.tokenizer),
                                     weights);
  Tensor probabilities({data.size(), std::ssize(config.labels)});
  const auto found = classifier.classify(texts.texts);
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const tasks::LabelProbability& one : found[i]) {
      probabilities.view<float, 2>()(static_cast<std::int64_t>(i), one.label) =
          one.probability;
    }
  }
  out.emplace("probabilities", std::move(probabilities));
  return out;
}

}  // namespace
}  // namespace regard

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    regard::save_safetensors(argv[4], regard::run(argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
