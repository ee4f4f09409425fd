// SPDX-License-Identifier: Apache-2.0
// Runs layers of a Transformer, or a whole one, on files, for tests in other
// languages:
//
//   transformer_driver IN.safetensors OUT.safetensors
//
// IN holds the parameters as param.<name>, and the config's numbers in its
// metadata. With metadata kind = encoder or decoder it holds x [rows, d],
// offsets [n + 1], d_out, and for a decoder memory and memory_offsets; OUT gets
// out, d_x, d_memory and grad.<name>. With kind = model it holds source,
// target, target_out and the offsets; OUT gets loss [2] and grad.<name>.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/nn/layers.h"
#include "regard/nn/transformer.h"
#include "support/driver.h"

namespace {

using namespace regard;
using test::number_of;

nn::TransformerConfig config_of(const SafetensorsFile& f) {
  const auto integer = [&](const char* name, double otherwise) {
    return static_cast<std::int64_t>(number_of(f, name, otherwise));
  };
  nn::TransformerConfig c;
  c.source_vocab = integer("source_vocab", 1);
  c.target_vocab = integer("target_vocab", 1);
  c.model_dim = integer("model_dim", 0);
  c.heads = integer("heads", 1);
  c.encoder_layers = integer("encoder_layers", 1);
  c.decoder_layers = integer("decoder_layers", 1);
  c.feed_forward_dim = integer("feed_forward_dim", 0);
  c.activation = static_cast<nn::Activation>(integer("activation", 1));
  c.norm_first = integer("norm_first", 0) != 0;
  c.final_norm = integer("final_norm", 1) != 0;
  c.shared_embeddings = integer("shared_embeddings", 0) != 0;
  c.tied_output = integer("tied_output", 0) != 0;
  c.label_smoothing = static_cast<float>(number_of(f, "label_smoothing", 0));
  return c;
}

template <typename T>
std::vector<T> list(const SafetensorsFile& file, const char* name) {
  const Tensor tensor = file.tensor(name);
  const auto values = tensor.values<T>();
  return {values.begin(), values.end()};
}

StateDict run_layer(const SafetensorsFile& file) {
  const StateDict parameters = test::parameters_of(file);
  const bool decoder = file.metadata().at("kind") == "decoder";
  StateDict result, gradients;
  nn::prepare_gradients(parameters, gradients);
  const Tensor x = file.tensor("x");
  const Tensor d_out = file.tensor("d_out");
  const auto offsets = list<std::int64_t>(file, "offsets");
  Tensor memory({0, 0});
  std::vector<std::int64_t> memory_offsets;
  if (decoder) {
    memory = file.tensor("memory");
    memory_offsets = list<std::int64_t>(file, "memory_offsets");
  }
  autograd::Tape tape;
  nn::Pass pass(tape, parameters, &gradients);
  const nn::Variable in = tape.input(x.view<float, 2>());
  const nn::Variable other = tape.input(std::as_const(memory).view<float, 2>());
  const nn::LayerConfig config = config_of(file).layer();
  const nn::Variable out = decoder
                               ? nn::TransformerDecoderLayer{"layer", config}(
                                     pass, in, {.offsets = offsets}, other,
                                     {.offsets = memory_offsets})
                               : nn::TransformerEncoderLayer{"layer", config}(
                                     pass, in, {.offsets = offsets});
  result["out"] =
      Tensor(std::span(out.data(),
                       static_cast<std::size_t>(out.rows() * out.columns())),
             {out.rows(), out.columns()});
  tape.backward(out, d_out.view<float, 2>());
  result["d_x"] = tape.gradient_of(in);
  if (decoder) result["d_memory"] = tape.gradient_of(other);
  for (auto& [name, gradient] : gradients) result["grad." + name] = gradient;
  return result;
}

StateDict run_model(const SafetensorsFile& file) {
  nn::Transformer model(config_of(file), test::parameters_of(file));
  const nn::TranslationBatch batch{{list<std::int32_t>(file, "source"),
                                    list<std::int64_t>(file, "source_offsets")},
                                   {list<std::int32_t>(file, "target"),
                                    list<std::int64_t>(file, "target_offsets")},
                                   list<std::int32_t>(file, "target_out")};
  StateDict result, gradients;
  const nn::LossSum sum = model.loss_and_gradients(batch, 1, gradients);
  const std::vector<double> losses{sum.loss, sum.likelihood};
  result["loss"] = Tensor(std::span<const double>(losses), {2});
  for (auto& [name, gradient] : gradients) result["grad." + name] = gradient;
  return result;
}

StateDict run(const SafetensorsFile& file) {
  return test::text_of(file, "kind") == "model" ? run_model(file)
                                                : run_layer(file);
}

}  // namespace

int main(int argc, char** argv) {
  return test::drive(argc, argv, "transformer_driver", run);
}
