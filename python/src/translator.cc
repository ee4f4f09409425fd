// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/translator.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models.h"
#include "options.h"
#include "regard/tasks/translate_text.h"

namespace regard::python {
namespace {

using tasks::Translator;

std::vector<std::string> translate(const Translator& translator,
                                   const std::vector<std::string>& texts,
                                   const std::string& to, std::int64_t beams,
                                   int threads) {
  std::vector<std::string> results;
  run_released([&] {
    for (tasks::Translation& best : tasks::translate_texts(
             translator, texts,
             {.beam = beams, .to = to, .threads = {.count = threads}})) {
      results.push_back(std::move(best.text));
    }
  });
  return results;
}

nb::dict config(const Translator& translator) {
  const tasks::Languages& languages = translator.config().languages;
  const nn::TransformerConfig& model = translator.config().model;
  nb::dict all;
  all["source"] = languages.source;
  all["target"] = languages.target;
  all["both_directions"] = languages.both_directions;
  all["model_dim"] = model.model_dim;
  all["encoder_layers"] = model.encoder_layers;
  all["decoder_layers"] = model.decoder_layers;
  all["heads"] = model.heads;
  return all;
}

}  // namespace

void bind_translator(nb::module_& m) {
  nb::class_<Translator>(m, "Translator",
                         "A trained translator; see regard.load.")
      .def_static(
          "load",
          [](const std::string& folder, const std::string& weights) {
            const ops::WeightStorage storage = weight_storage(weights);
            const nb::gil_scoped_release released;
            return Translator::load(folder, storage);
          },
          nb::arg("folder"), nb::arg("weights"))
      .def("config", &config)
      .def("translate", &translate, nb::arg("texts"), nb::arg("to"),
           nb::arg("beams"), nb::arg("threads"));
}

}  // namespace regard::python
