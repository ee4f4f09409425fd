// SPDX-License-Identifier: Apache-2.0
// text_encoder_driver MODEL LINES OUT: what a pretrained encoder makes of each
// line of a file, layer by layer: hidden.N, weights.N, ids.N.
#include <cstdio>
#include <exception>
#include <string>

#include "regard/io/safetensors.h"
#include "regard/tasks/text_encoder.h"
#include "regard/text/lines.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    const auto encoder = regard::tasks::TextEncoder::load(argv[1]);
    regard::StateDict out;
    int number = 0;
    for (const std::string& line : regard::text::read_lines(argv[2])) {
      regard::tasks::TextTrace trace = encoder.trace(line);
      const std::string suffix = "." + std::to_string(number++);
      const auto& ids = trace.encoding.ids;
      out.emplace("ids" + suffix,
                  regard::Tensor(std::span<const std::int32_t>(ids),
                                 {static_cast<std::int64_t>(ids.size())}));
      out.emplace("hidden" + suffix, std::move(trace.hidden_states));
      out.emplace("weights" + suffix, std::move(trace.weights));
    }
    regard::save_safetensors(argv[3], out);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
