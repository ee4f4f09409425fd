// SPDX-License-Identifier: Apache-2.0
#include "tasks/samples.h"

#include <array>

#include "regard/core/error.h"

namespace regard::tasks {
namespace {

struct Generator {
  const char* task;
  std::vector<SampleFile> (*make)(std::uint64_t seed);
};
constexpr std::array kGenerators = {Generator{"classify", sample_reviews},
                                    Generator{"listops", sample_list_ops},
                                    Generator{"recommend", sample_series},
                                    Generator{"answer", sample_stories},
                                    Generator{"spans", sample_spans},
                                    Generator{"choices", sample_choices},
                                    Generator{"summarize", sample_dialogues},
                                    Generator{"caption", sample_shapes},
                                    Generator{"video", sample_moving_shapes}};

}  // namespace

std::vector<std::string> sample_tasks() {
  std::vector<std::string> tasks;
  for (const Generator& generator : kGenerators) {
    tasks.emplace_back(generator.task);
  }
  return tasks;
}

std::vector<SampleFile> make_sample(const std::string& task,
                                    std::uint64_t seed) {
  for (const Generator& generator : kGenerators) {
    if (task == generator.task) return generator.make(seed);
  }
  require(false, "make_sample", "there is no sample for '", task, "'");
  return {};
}

}  // namespace regard::tasks
