// SPDX-License-Identifier: Apache-2.0
// regard quantize: a model's file with weights of fewer bits.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/tensor_file.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "io/read_file.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/quantize.h"

namespace regard::cli {
namespace {

using ops::WeightStorage;
using tasks::QuantizedTensor;

struct QuantizeFlags {
  std::string model;
  std::string out;
  std::string measure;
  WeightStorage to = WeightStorage::kInt8;
  std::int64_t part = 256;
  bool json = false;
  int threads = 0;
};

constexpr const char* kFooter =
    R"(The model is a language model in a GGUF file with weights of any type. int8 makes
its matrices Q8_0, 8.5 bits a weight; int4 makes them Q4_1, 5 bits a weight, and
leaves the table of tokens at Q8_0. Norms and biases stay as they are, and so do
all settings: llama.cpp reads the new file, too. `regard generate --weights
as-stored` and `regard chat` compute with the integers.

The report has a line for each layer: how far its weights moved, as the root of
the mean square of the change over that of the weights. --measure reads a text
with both files and tells their perplexity, e to the mean loss a token: that is
what the change means for the model.

Examples:
  regard quantize model-f16.gguf --to int8 --out model-q8.gguf
  regard quantize model-f16.gguf --to int4 --out model-q4.gguf --measure text.txt)";

// What a report adds up: the tensors of a layer, or of all.
struct Sum {
  double change = 0, power = 0;
  std::int64_t before = 0, after = 0;

  void add(const QuantizedTensor& tensor) {
    const auto bytes = static_cast<double>(tensor.bytes_before);
    change += tensor.error * tensor.error * bytes;
    power += tensor.size * tensor.size * bytes;
    before += tensor.bytes_before;
    after += tensor.bytes_after;
  }
  double error() const { return power > 0 ? std::sqrt(change / power) : 0; }
};

// "blk.3" of "blk.3.attn_q.weight", "token_embd" of "token_embd.weight".
std::string layer_of(const std::string& name) {
  std::size_t end = name.find('.');
  if (name.starts_with("blk.")) end = name.find('.', end + 1);
  return name.substr(0, end);
}

// blk.10 comes after blk.9.
std::pair<std::int64_t, std::string> place_of(const std::string& layer) {
  if (!layer.starts_with("blk.")) return {-1, layer};
  return {std::stoll(layer.substr(4)), layer};
}

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

double measured(const std::string& model, const QuantizeFlags& flags,
                WeightStorage weights, std::int64_t& count) {
  const tasks::LoadedModel loaded =
      tasks::load_language_model(model, std::nullopt, weights);
  const std::vector<std::int32_t> tokens = loaded.tokenizer->encode(
      io::read_file(flags.measure, "quantize --measure"));
  count = std::ssize(tokens);
  return tasks::perplexity(loaded.model, tokens, flags.part,
                           {.count = flags.threads});
}

void run_quantize(const QuantizeFlags& flags) {
  check_can_write(flags.out);
  std::int64_t tokens = 0;
  // Before anything is written: a text that cannot be measured ends it here.
  double before = 0, after = 0;
  if (!flags.measure.empty()) {
    before = measured(flags.model, flags, WeightStorage::kFloat32, tokens);
  }
  std::vector<QuantizedTensor> report;
  {
    Progress progress("rounding", "tensors");
    report = tasks::quantize_gguf(
        flags.model, flags.out,
        {.to = flags.to, .progress = [&](std::int64_t done, std::int64_t all) {
           progress.update(done, all);
         }});
  }
  if (!flags.measure.empty()) {
    after = measured(flags.out, flags, WeightStorage::kAsStored, tokens);
  }
  std::map<std::pair<std::int64_t, std::string>, Sum> layers;
  Sum all;
  for (const QuantizedTensor& tensor : report) {
    layers[place_of(layer_of(tensor.name))].add(tensor);
    all.add(tensor);
  }
  if (flags.json) {
    nlohmann::ordered_json json = {{"bytes_before", all.before},
                                   {"bytes_after", all.after},
                                   {"error", all.error()}};
    if (!flags.measure.empty()) {
      json["perplexity_before"] = before;
      json["perplexity_after"] = after;
      json["tokens"] = tokens;
    }
    for (const auto& [place, sum] : layers) {
      json["layers"][place.second] = sum.error();
    }
    print(json.dump() + "\n");
    return;
  }
  print(fmt::format("{:12}  {:>8}  {:>10}  {:>10}\n", "layer", "error",
                    "before", "after"));
  for (const auto& [place, sum] : layers) {
    print(fmt::format("{:12}  {:>7.2f}%  {:>10}  {:>10}\n",
                      on_one_line(place.second), 100 * sum.error(),
                      megabytes(sum.before), megabytes(sum.after)));
  }
  print(fmt::format("{:12}  {:>7.2f}%  {:>10}  {:>10}  -> {}\n", "all",
                    100 * all.error(), megabytes(all.before),
                    megabytes(all.after), on_one_line(flags.out)));
  if (!flags.measure.empty()) {
    print(
        fmt::format("perplexity of {} ({} tokens): {:.3f} before, {:.3f} "
                    "after ({:+.2f} %)\n",
                    on_one_line(flags.measure), tokens, before, after,
                    100 * (after / before - 1)));
  }
}

}  // namespace

Command add_quantize(App& program) {
  const auto flags = std::make_shared<QuantizeFlags>();
  App* app = program.add_subcommand(
      "quantize", "A model's file with weights of 8 or 4 bits");
  app->footer(kFooter);
  app->add_option("MODEL", flags->model, "A GGUF file")
      ->type_name("FILE")
      ->required();
  app->add_choice<WeightStorage>(
      "--to", flags->to,
      {{"int8", WeightStorage::kInt8}, {"int4", WeightStorage::kInt4}},
      "What matrices become; int8 if not given");
  app->add_option("--out", flags->out, "The new file")
      ->type_name("FILE")
      ->required();
  app->add_option("--measure", flags->measure,
                  "A text whose perplexity tells what the change means")
      ->type_name("FILE");
  app->add_option("--part", flags->part,
                  "With --measure: tokens that are read together")
      ->type_name("N")
      ->check(whole_between(2, 1 << 20))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "The report as JSON");
  add_threads_flag(*app, flags->threads)->group("Machine");
  return {app, [flags] { run_quantize(*flags); }};
}

}  // namespace regard::cli
