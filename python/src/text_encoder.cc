// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bind.h"
#include "models.h"
#include "options.h"
#include "regard/tasks/text_encoder.h"

namespace regard::python {
namespace {

using tasks::TextEncoder;

// An array of NumPy with the elements of a tensor.
nb::object to_numpy(const Tensor& tensor) {
  nb::object array = new_array(nb::none(), tensor.shape(), tensor.dtype());
  const Array to(array, "TextEncoder", "result", Array::Access::kWrite);
  std::copy_n(tensor.bytes(), tensor.byte_count(),
              static_cast<std::byte*>(to.data()));
  return array;
}

tasks::TextEncoderOptions options_of(const std::string& prompt, int threads) {
  return {.prompt = prompt, .threads = {.count = threads}};
}

nb::object encode(const TextEncoder& encoder,
                  const std::vector<std::string>& texts,
                  const std::string& prompt, int threads) {
  Tensor vectors;
  run_released(
      [&] { vectors = encoder.encode(texts, options_of(prompt, threads)); });
  return to_numpy(vectors);
}

nb::tuple trace(const TextEncoder& encoder, const std::string& text,
                const std::string& prompt, int threads) {
  tasks::TextTrace seen;
  run_released(
      [&] { seen = encoder.trace(text, options_of(prompt, threads)); });
  return nb::make_tuple(nb::cast(seen.pieces), nb::cast(seen.encoding.words),
                        to_numpy(seen.hidden_states), to_numpy(seen.weights));
}

nb::dict config(const TextEncoder& encoder) {
  const tasks::TextEncoderConfig& c = encoder.config();
  nb::list pooling;
  for (const tasks::Pooling one : c.pooling) {
    pooling.append(std::string(tasks::pooling_name(one)));
  }
  nb::dict prompts;
  for (const auto& [name, prompt] : c.prompts) {
    prompts[name.c_str()] = prompt;
  }
  nb::dict all;
  all["family"] = c.family;
  all["vocab"] = c.vocab;
  all["model_dim"] = c.model_dim;
  all["layers"] = c.layers;
  all["heads"] = c.heads;
  all["max_length"] = c.max_length;
  all["embedding_dim"] = c.embedding_dim();
  all["pooling"] = pooling;
  all["normalize"] = c.normalize;
  all["prompts"] = prompts;
  return all;
}

}  // namespace

void bind_text_encoder(nb::module_& m) {
  nb::class_<TextEncoder>(m, "TextEncoder",
                          "A pretrained encoder; see regard.load.")
      .def_static(
          "load",
          [](const std::string& folder, const std::string& weights) {
            const ops::WeightStorage storage = weight_storage(weights);
            const nb::gil_scoped_release released;
            return TextEncoder::load(folder, {}, storage);
          },
          nb::arg("folder"), nb::arg("weights"))
      .def("config", &config)
      .def("encode", &encode, nb::arg("texts"), nb::arg("prompt"),
           nb::arg("threads"))
      .def("trace", &trace, nb::arg("text"), nb::arg("prompt"),
           nb::arg("threads"));
}

}  // namespace regard::python
