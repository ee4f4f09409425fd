// SPDX-License-Identifier: Apache-2.0
// regard quantize: a model's file with weights of fewer bits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/tensor_file.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/classifier.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/model_kind.h"
#include "regard/tasks/quantize.h"
#include "regard/tasks/score.h"
#include "regard/tasks/text_encoder.h"
#include "regard/tasks/translator.h"
#include "regard/text/lines.h"

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
    R"(The model is a language model in a GGUF file, the folder of a pretrained encoder
(BERT, RoBERTa, DistilBERT, MPNet, ALBERT), or a folder of `regard train`.

GGUF: weights may have any type. int8 makes the matrices Q8_0, 8.5 bits per
weight; int4 makes them Q4_1, 5 bits per weight, and the token embeddings Q8_0.
Norms, biases and all settings stay as they are: llama.cpp reads the new file,
too. `regard generate` and `regard chat` compute with the integers.

Encoders: int8 makes the matrices 8.5 bits per weight and int4 makes them 5; the
embedding tables stay as they are. `regard embed --weights as-stored` computes
with the integers, and gives the vectors of the old folder with `--weights
int8`.

Models that `regard train` made: the matrices of the layers become as small; the
embedding tables stay as they are. `--weights as-stored` of `regard translate`,
`classify`, `answer`, `caption`, `recommend` and `video` computes with the
integers, and `regard summarize` does so by default; elsewhere they are
converted to float32.

The report has a line for each layer: the relative error of its weights (root
mean square of the change divided by that of the weights). --measure compares
both models on a text. For language models it is the perplexity; for encoders
the cosines between the vectors of its lines, and the share of lines with the
same nearest other line; for translators the BLEU of its pairs (source, tab,
target on each line); for classifiers the accuracy on a table with the columns
`text` and `label`.

Examples:
  regard quantize all-MiniLM-L6-v2 --to int8 --out minilm-int8 --measure lines.txt
  regard quantize my-translator --to int8 --out smaller --measure test.tsv
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

// "blk.3" of "blk.3.attn_q.weight", "encoder.layer.3" of
// "encoder.layer.3.output.dense.weight", "token_embd" of "token_embd.weight".
// With the number first: layer 10 comes after layer 9.
using Place = std::pair<std::int64_t, std::string>;
Place layer_of(const std::string& name) {
  for (std::size_t end = name.find('.'); end != std::string::npos;) {
    const std::size_t next = std::min(name.find('.', end + 1), name.size());
    const std::string part = name.substr(end + 1, next - end - 1);
    const bool number =
        !part.empty() && part.size() < 10 &&
        part.find_first_not_of("0123456789") == std::string::npos;
    if (number) return {std::stoll(part), name.substr(0, next)};
    end = next == name.size() ? std::string::npos : next;
  }
  return {-1, name.substr(0, name.find('.'))};
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

using Rounding = std::vector<QuantizedTensor> (*)(
    const std::filesystem::path&, const std::filesystem::path&,
    const tasks::QuantizeOptions&);
std::vector<QuantizedTensor> round(const QuantizeFlags& flags,
                                   Rounding rounding) {
  Progress progress("rounding", "tensors");
  return rounding(
      flags.model, flags.out,
      {.to = flags.to, .progress = [&](std::int64_t done, std::int64_t all) {
         progress.update(done, all);
       }});
}

// What else would look like a success is a copy.
void tell_if_nothing_changed(const std::vector<QuantizedTensor>& report) {
  const bool changed = std::any_of(
      report.begin(), report.end(),
      [](const QuantizedTensor& tensor) { return tensor.from != tensor.to; });
  if (changed) return;
  std::fputs(
      "(no matrix was rounded: each has such a type already, or rows that are "
      "no multiple of 64 numbers, of 32 for int4 and in GGUF files; the new "
      "model is a copy)\n",
      stderr);
}

// The layers of what was rounded; `measure` is the model's own, or null.
void print_report(const QuantizeFlags& flags,
                  const std::vector<QuantizedTensor>& report,
                  const Json& measure) {
  tell_if_nothing_changed(report);
  std::map<Place, Sum> layers;
  Sum all;
  for (const QuantizedTensor& tensor : report) {
    layers[layer_of(tensor.name)].add(tensor);
    all.add(tensor);
  }
  if (flags.json) {
    Json json = {{"bytes_before", all.before},
                 {"bytes_after", all.after},
                 {"error", all.error()}};
    if (!measure.is_null()) json.update(measure);
    for (const auto& [place, sum] : layers) {
      json["layers"][place.second] = sum.error();
    }
    print(json.dump({.keys = Json::Keys::kAsWritten}) + "\n");
    return;
  }
  print(fmt::format("{:18}  {:>8}  {:>10}  {:>10}\n", "layer", "error",
                    "before", "after"));
  for (const auto& [place, sum] : layers) {
    print(fmt::format("{:18}  {:>7.2f}%  {:>10}  {:>10}\n",
                      on_one_line(place.second), 100 * sum.error(),
                      megabytes(sum.before), megabytes(sum.after)));
  }
  print(fmt::format("{:18}  {:>7.2f}%  {:>10}  {:>10}  -> {}\n", "all",
                    100 * all.error(), megabytes(all.before),
                    megabytes(all.after), on_one_line(flags.out)));
}

void quantize_language_model(const QuantizeFlags& flags) {
  check_can_write(flags.out);
  if (flags.measure.empty()) {
    return print_report(flags, round(flags, tasks::quantize_gguf), {});
  }
  std::int64_t tokens = 0;
  // Before anything is written: a text that cannot be measured ends it here.
  const double before =
      measured(flags.model, flags, WeightStorage::kFloat32, tokens);
  const auto report = round(flags, tasks::quantize_gguf);
  const double after =
      measured(flags.out, flags, WeightStorage::kAsStored, tokens);
  print_report(flags, report,
               {{"perplexity_before", before},
                {"perplexity_after", after},
                {"tokens", tokens}});
  if (flags.json) return;
  print(
      fmt::format("perplexity of {} ({} tokens): {:.3f} before, {:.3f} "
                  "after ({:+.2f} %)\n",
                  on_one_line(flags.measure), tokens, before, after,
                  100 * (after / before - 1)));
}

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines = text::read_lines(file);
  std::erase_if(lines, text::is_blank);
  if (lines.size() < 2) {
    throw UsageError(
        "--measure: a text for an encoder has at least two lines "
        "that are not blank; '" +
        file + "' has " + std::to_string(lines.size()));
  }
  return lines;
}

// Vectors of length 1, one for each line.
Tensor directions(const std::string& model, const QuantizeFlags& flags,
                  WeightStorage weights,
                  const std::vector<std::string>& lines) {
  const Threads threads{.count = flags.threads};
  Tensor all = tasks::TextEncoder::load(model, threads, weights)
                   .encode(lines, {.threads = threads});
  const auto rows = all.view<float, 2>();
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    double power = 0;
    for (std::int64_t c = 0; c < rows.extent(1); ++c) {
      power += double{rows.at(i)[c]} * double{rows.at(i)[c]};
    }
    const double factor = power > 0 ? 1 / std::sqrt(power) : 0;
    for (std::int64_t c = 0; c < rows.extent(1); ++c) {
      rows.at(i)[c] = static_cast<float>(rows.at(i)[c] * factor);
    }
  }
  return all;
}

double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

// The nearest other row of each.
std::vector<std::int64_t> nearest(const Tensor& vectors) {
  const auto rows = vectors.view<float, 2>();
  std::vector<std::int64_t> found;
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    std::int64_t best = i == 0 ? 1 : 0;
    double most = -2;
    for (std::int64_t j = 0; j < rows.extent(0); ++j) {
      const double near = dot(rows.at(i), rows.at(j), rows.extent(1));
      if (j == i || near <= most) continue;
      most = near;
      best = j;
    }
    found.push_back(best);
  }
  return found;
}

void quantize_folder(const QuantizeFlags& flags) {
  if (flags.measure.empty()) {
    return print_report(flags, round(flags, tasks::quantize_encoder), {});
  }
  const std::vector<std::string> lines = lines_of(flags.measure);
  const Tensor before =
      directions(flags.model, flags, WeightStorage::kFloat32, lines);
  const auto report = round(flags, tasks::quantize_encoder);
  const Tensor after =
      directions(flags.out, flags, WeightStorage::kAsStored, lines);
  const auto a = before.view<float, 2>(), b = after.view<float, 2>();
  double sum = 0, least = 1;
  for (std::int64_t i = 0; i < a.extent(0); ++i) {
    const double cosine = dot(a.at(i), b.at(i), a.extent(1));
    sum += cosine;
    least = std::min(least, cosine);
  }
  const auto near_before = nearest(before), near_after = nearest(after);
  std::int64_t same = 0;
  for (std::size_t i = 0; i < near_before.size(); ++i) {
    same += near_before[i] == near_after[i] ? 1 : 0;
  }
  const auto count = static_cast<double>(lines.size());
  print_report(flags, report,
               {{"lines", lines.size()},
                {"cosine", sum / count},
                {"least_cosine", least},
                {"same_nearest", static_cast<double>(same) / count}});
  if (flags.json) return;
  print(fmt::format(
      "{} lines of {}: cosine {:.5f}, at least {:.5f}; the same nearest line "
      "for {:.1f} %\n",
      lines.size(), on_one_line(flags.measure), sum / count, least,
      100 * static_cast<double>(same) / count));
}

// A number that both models have, and what it is called.
struct Measure {
  const char* name;
  const char* key;
  std::string what;  // of what it was taken
  double before = 0, after = 0;
};

// Of a model that was trained here; value(folder, weights) is what is to be
// measured. What cannot be measured ends it before anything is written.
void quantize_measured(
    const QuantizeFlags& flags, Measure measure,
    const std::function<double(const std::string&, WeightStorage)>& value) {
  measure.before = value(flags.model, WeightStorage::kFloat32);
  const auto report = round(flags, tasks::quantize_trained);
  measure.after = value(flags.out, WeightStorage::kAsStored);
  const std::string key = measure.key;
  print_report(
      flags, report,
      {{key + "_before", measure.before}, {key + "_after", measure.after}});
  if (flags.json) return;
  print(fmt::format("{} of {} ({}): {:.2f} before, {:.2f} after ({:+.2f})\n",
                    measure.name, on_one_line(flags.measure), measure.what,
                    measure.before, measure.after,
                    measure.after - measure.before));
}

void quantize_translator(const QuantizeFlags& flags) {
  const text::Pairs pairs = text::read_tsv(flags.measure);
  if (pairs.sources.empty()) {
    throw UsageError("--measure: there are no pairs in '" + flags.measure +
                     "'");
  }
  quantize_measured(
      flags, {"BLEU", "bleu", fmt::format("{} pairs", pairs.sources.size())},
      [&](const std::string& model, WeightStorage weights) {
        const auto translator = tasks::Translator::load(model, weights);
        const std::string to = translator.config().languages.target;
        std::vector<std::string> said;
        for (const auto& found : translator.translate(
                 pairs.sources,
                 {.to = to, .threads = {.count = flags.threads}})) {
          said.push_back(found.front().text);
        }
        return tasks::bleu(said, pairs.targets,
                           {.tokens = to == "zh" ? tasks::ScoreTokens::kZh
                                                 : tasks::ScoreTokens::k13a})
            .score;
      });
}

void quantize_classifier(const QuantizeFlags& flags) {
  const tasks::LabelledTexts data = tasks::read_labelled_texts(flags.measure);
  if (data.size() == 0) {
    throw UsageError("--measure: there are no texts in '" + flags.measure +
                     "'");
  }
  quantize_measured(
      flags, {"accuracy", "accuracy", fmt::format("{} texts", data.size())},
      [&](const std::string& model, WeightStorage weights) {
        const auto classifier = tasks::Classifier::load(model, weights);
        std::vector<std::string> said;
        for (const auto& found :
             classifier.classify(data.texts, {.count = flags.threads})) {
          said.push_back(
              classifier.config()
                  .labels[static_cast<std::size_t>(found.front().label)]);
        }
        return 100 * tasks::score_labels(data.labels, said).accuracy;
      });
}

void run_quantize(const QuantizeFlags& flags) {
  std::error_code error;
  if (!std::filesystem::is_directory(flags.model, error)) {
    return quantize_language_model(flags);
  }
  if (flags.part != QuantizeFlags().part) {
    throw UsageError("--part is for a language model; '" + flags.model +
                     "' is a folder");
  }
  const std::string kind = tasks::trained_kind(flags.model);
  if (kind.empty()) {
    if (tasks::find_model_kind(flags.model) != tasks::ModelKind::kTextEncoder) {
      throw UsageError(
          "a folder is that of a pretrained encoder, or of a model that "
          "`regard train` made; others become smaller when they are loaded, "
          "with --weights int8");
    }
    return quantize_folder(flags);
  }
  if (flags.measure.empty()) {
    return print_report(flags, round(flags, tasks::quantize_trained), {});
  }
  if (kind == "regard translator") return quantize_translator(flags);
  if (kind == "regard classifier") return quantize_classifier(flags);
  throw UsageError(
      "--measure is for translators and classifiers of those that "
      "were trained here; this is a '" +
      kind + "'");
}

}  // namespace

Command add_quantize(App& program) {
  const auto flags = std::make_shared<QuantizeFlags>();
  App* app = program.add_subcommand(
      "quantize", "Quantize a model's weights to 8 or 4 bits");
  app->footer(kFooter);
  app->add_option(
         "MODEL", flags->model,
         "A GGUF file, or the folder of a pretrained encoder or of a model "
         "that was trained here")
      ->type_name("PATH")
      ->required();
  app->add_choice<WeightStorage>(
      "--to", flags->to,
      {{"int8", WeightStorage::kInt8}, {"int4", WeightStorage::kInt4}},
      "Type of the matrices; int8 if not given");
  app->add_option("--out", flags->out, "The new file, or the new folder")
      ->type_name("PATH")
      ->required();
  app->add_option("--measure", flags->measure,
                  "Compare both models on this text: perplexity, vectors of "
                  "its lines, BLEU or accuracy")
      ->type_name("FILE");
  app->add_option("--part", flags->part,
                  "With --measure of a language model: tokens per window")
      ->type_name("N")
      ->check(whole_between(2, 1 << 20))
      ->needs("--measure")
      ->capture_default_str();
  app->add_flag("--json", flags->json, "The report as JSON");
  add_threads_flag(*app, flags->threads)->group("Machine");
  return {app, [flags] { run_quantize(*flags); }};
}

}  // namespace regard::cli
