// SPDX-License-Identifier: Apache-2.0
// Runs a translator of Hugging Face or CTranslate2 on tokens, for tests in
// other languages:
//
//   imported_translator_driver IN.safetensors OUT.safetensors
//
// IN holds source and target, int32, each one sequence, and in its metadata the
// model's folder. OUT gets what the encoder makes of the source, memory
// [source, d], and the scores after each token of the target, logits [target,
// vocab].
#include <algorithm>
#include <span>
#include <string>

#include "regard/nn/decoding.h"
#include "support/driver.h"
#include "tasks/imported_translator.h"

namespace {

using namespace regard;

StateDict run(const SafetensorsFile& file) {
  const std::string folder = test::text_of(file, "model");
  const tasks::ImportedTranslator model =
      tasks::find_ctranslate2(folder).empty() ? tasks::load_hugging_face(folder)
                                              : tasks::load_ctranslate2(folder);
  const nn::TransformerDecoder decoder(model.config.model, model.weights);
  const Tensor source = file.tensor("source");
  const Tensor target = file.tensor("target");
  nn::PackedTokens packed;
  const auto tokens = source.values<std::int32_t>();
  packed.tokens.assign(tokens.begin(), tokens.end());
  packed.offsets.push_back(packed.size());
  StateDict result;
  result["memory"] = decoder.encode(packed);
  nn::DecoderState state = decoder.start(packed, 1);
  Tensor logits({target.size(), model.config.model.target_vocab});
  for (std::int64_t i = 0; i < target.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    state.step(target.values<std::int32_t>().subspan(at, 1));
    std::copy_n(state.logits().at(0), state.logits().extent(1),
                logits.view<float, 2>().at(i));
  }
  result["logits"] = std::move(logits);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return test::drive(argc, argv, "imported_translator_driver", run);
}
