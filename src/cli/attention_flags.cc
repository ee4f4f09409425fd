// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

#include "cli/checks.h"
#include "cli/number_list.h"
#include "cli/tensor_file.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "regard/core/error.h"

namespace regard::cli {
namespace {

// More than any machine has; the library allows no more either.
constexpr int kMostThreads = 1024;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 20;

void add_color_flag(App& app, ColorWhen& color) {
  app.add_choice<ColorWhen>(
         "--color", color,
         {{"auto", ColorWhen::kAuto},
          {"always", ColorWhen::kAlways},
          {"never", ColorWhen::kNever}},
         "auto (on a terminal, if NO_COLOR is not set), always, never")
      ->type_name("WHEN")
      ->group("Results");
}

}  // namespace

Option* add_file(App& app, const std::string& name, std::string& value,
                 const std::string& help) {
  return app.add_option(name, value, help)
      ->type_name("FILE")
      ->check(check_place);
}

void add_input_flags(App& app, AttentionFlags& flags) {
  const std::string group = "Inputs (.npy, or .safetensors:NAME)";
  add_file(app, "-x,--input", flags.input,
           "Self attention: queries, keys and values")
      ->group(group);
  add_file(app, "-q,--query", flags.query, "Queries")->group(group);
  add_file(app, "-k,--key", flags.key, "Keys; with --query")->group(group);
  add_file(app, "-v,--value", flags.value,
           "Values; with --key; the keys if not given")
      ->group(group);
}

void add_operation_flags(App& app, AttentionFlags& flags) {
  const std::string group = "Attention";
  app.add_option("--heads", flags.heads, "Heads to split the width into")
      ->type_name("N")
      ->check(whole_between(1, kMostHeads))
      ->group(group);
  app.add_option("--kv-heads", flags.kv_heads,
                 "Heads of keys and values, shared by groups of query heads; "
                 "as many as --heads if not given")
      ->type_name("N")
      ->check(whole_between(1, kMostHeads))
      ->group(group);
  app.add_option("--mask", flags.masks, "Which keys a query sees; see below")
      ->type_name("PARTS")
      ->group(group);
  add_file(app, "--bias", flags.bias,
           "Added to the scores; broadcast to [batch, heads, q_len, kv_len]")
      ->group(group);
  app.add_option("--scale", flags.scale,
                 "Factor of the scores; 1 / sqrt(head width) if not given")
      ->type_name("S")
      ->group(group);
  app.add_option(
         "--softcap", flags.softcap,
         "Scores become C * tanh(score / C), before the bias is added; 0: off")
      ->type_name("C")
      ->check(real_between(0, std::numeric_limits<double>::infinity()))
      ->group(group);
  app.add_option("--dropout", flags.dropout,
                 "Share of the attention weights that is dropped, in [0, 1)")
      ->type_name("R")
      ->check(real_below(0, 1))
      ->group(group);
  app.add_option("--seed", flags.seed, "Random seed; 0 if not given")
      ->type_name("S")
      ->group(group);
  app.add_choice<Compute>(
         "--compute", flags.compute,
         {{"float32", Compute::kFloat32}, {"bfloat16", Compute::kBFloat16}},
         "float32, or bfloat16: multiply in bf16, faster on processors that "
         "support it")
      ->type_name("TYPE")
      ->group(group);
  add_threads_flag(app, flags.threads)->group(group);
}

Option* add_threads_flag(App& app, int& threads) {
  return app
      .add_option("--threads", threads,
                  "Maximum number of threads; one per core if not given. It "
                  "does not change the result")
      ->type_name("N")
      ->check(whole_between(1, kMostThreads));
}

void add_output_flags(App& app, AttentionFlags& flags) {
  const std::string group = "Results";
  add_file(app, "-o,--out", flags.out, "Write the output, shaped as the query")
      ->group(group);
  add_file(app, "-w,--weights", flags.weights,
           "Write the weights before dropout: [heads, q_len, kv_len] for a "
           "query without batch, else [batch, heads, q_len, kv_len]")
      ->group(group);
  app.add_flag("--show", flags.show,
               "Draw the weights of each head (of the first batch entry). This "
               "is the default without --out and --weights")
      ->group(group);
  add_picture_flags(app, flags.head, flags.top);
  app.add_option("--text", flags.text,
                 "Words to label the positions in the picture")
      ->type_name("WORDS")
      ->group(group);
  add_color_flag(app, flags.color);
}

void add_picture_flags(App& app, std::string& head, std::int64_t& top) {
  constexpr std::int64_t kMostKeys = 1000;
  app.add_option("--head", head,
                 "Draw these heads only, such as 3 or 0-2,7; all if not given")
      ->type_name("LIST")
      ->check(check_numbers)
      ->group("Results");
  app.add_option("--top", top,
                 "List the N strongest keys of each query under the picture, "
                 "for long inputs")
      ->type_name("N")
      ->check(whole_between(1, kMostKeys))
      ->group("Results");
}

bool has_inputs(const AttentionFlags& flags) {
  return !(flags.input.empty() && flags.query.empty() && flags.key.empty() &&
           flags.value.empty());
}

Inputs load_inputs(const AttentionFlags& flags) {
  const bool others =
      !(flags.query.empty() && flags.key.empty() && flags.value.empty());
  if (!flags.input.empty()) {
    if (others)
      throw UsageError("--input goes without --query, --key, --value");
    return {load_numbers(flags.input, "--input"), {}, {}};
  }
  if (flags.query.empty() || flags.key.empty()) {
    throw UsageError("give --input, or --query and --key (and --value)");
  }
  Inputs inputs{load_numbers(flags.query, "--query"),
                load_numbers(flags.key, "--key"),
                {}};
  if (!flags.value.empty()) {
    inputs.own_value = load_numbers(flags.value, "--value");
  }
  return inputs;
}

Tensor load_numbers(const std::string& place, const char* flag) {
  Tensor tensor = load_tensor(place);
  require(tensor.dtype() != DType::kBool, flag, "it must hold numbers; '",
          place, "' is bool, which is for --mask keep= and drop=");
  return tensor;
}

bool wants_picture(const AttentionFlags& flags) {
  return flags.show || !flags.head.empty() || flags.top > 0 ||
         (flags.out.empty() && flags.weights.empty());
}

void check_flags(const AttentionFlags& flags) {
  if (flags.heads > 0 && flags.kv_heads > 0 &&
      flags.heads % flags.kv_heads != 0) {
    throw UsageError(
        fmt::format("--kv-heads must divide --heads; they are {} "
                    "and {}",
                    flags.kv_heads, flags.heads));
  }
  // Where no file is named, the words are the input.
  const bool labels = has_inputs(flags) && !flags.text.empty();
  if (!wants_picture(flags) && (labels || flags.color != ColorWhen::kAuto)) {
    throw UsageError("--text and --color are for the picture: give --show");
  }
  for (const std::string& place : {flags.out, flags.weights}) {
    if (!place.empty()) check_can_save(place);
  }
  if (flags.out.empty() || flags.weights.empty()) return;
  std::error_code error;
  // Absolute first: a relative path that does not exist would stay as it is.
  const auto out = std::filesystem::absolute(parse_place(flags.out).path);
  const auto weights =
      std::filesystem::absolute(parse_place(flags.weights).path);
  if (std::filesystem::weakly_canonical(out, error) ==
      std::filesystem::weakly_canonical(weights, error)) {
    throw UsageError("--out and --weights must be two files");
  }
}

void save_output(const std::string& place, const char* name,
                 const Tensor& tensor) {
  if (place.empty()) return;
  save_tensor(place, name, tensor);
  print(fmt::format("{} {} -> {}\n", name, to_string(tensor.shape()),
                    on_one_line(place)));
}

HeatMaps make_picture(const HeatMaps::Sizes& sizes, const AttentionFlags& flags,
                      const std::vector<std::string>& more_keys) {
  const std::vector<std::string> words = words_of(flags.text);
  const std::int64_t count = std::ssize(words);
  const std::int64_t kv_len = sizes.kv_len - std::ssize(more_keys);
  require(count == 0 || count == sizes.q_len || count == kv_len, "--text",
          "there must be as many words as queries or keys; words are ", count,
          ", queries ", sizes.q_len, ", keys ", kv_len);
  HeatMaps::Labels labels;
  if (count == sizes.q_len) labels.queries = words;
  for (std::int64_t i = 0; i < kv_len; ++i) {
    labels.keys.push_back(count == kv_len ? words[static_cast<std::size_t>(i)]
                                          : std::to_string(i));
  }
  labels.keys.insert(labels.keys.end(), more_keys.begin(), more_keys.end());
  std::vector<std::int64_t> heads = parse_numbers(flags.head, "--head");
  check_below(heads, sizes.heads, "--head", "heads");
  return {sizes,
          std::move(labels),
          standard_output(flags.color),
          {std::move(heads), flags.top}};
}

}  // namespace regard::cli
