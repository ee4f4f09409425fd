// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/heat_map.h"
#include "cli/options.h"
#include "cli/screen.h"
#include "regard/attention/attention.h"
#include "regard/tensor/tensor.h"

namespace regard::cli {

// What the commands that attend have in common, as the user wrote it.
struct AttentionFlags {
  std::string input;  // x, or else query with key and perhaps value
  std::string query;
  std::string key;
  std::string value;

  std::int64_t heads = 0;     // 0: not said
  std::int64_t kv_heads = 0;  // 0: not said
  std::vector<std::string> masks;
  std::string bias;
  std::optional<double> scale;
  double softcap = 0;
  double dropout = 0;
  std::uint64_t seed = 0;
  Compute compute = Compute::kFloat32;
  int threads = 0;

  std::string out;
  std::string weights;
  bool show = false;
  std::string head;      // a list
  std::int64_t top = 0;  // keys to list of each query
  std::string text;
  ColorWhen color = ColorWhen::kAuto;
};

void add_input_flags(App& app, AttentionFlags& flags);
void add_operation_flags(App& app, AttentionFlags& flags);
void add_output_flags(App& app, AttentionFlags& flags);
Option* add_threads_flag(App& app, int& threads);
void add_picture_flags(App& app, std::string& head, std::int64_t& top);

// An option whose value names a tensor's file.
Option* add_file(App& app, const std::string& name, std::string& value,
                 const std::string& help);

struct Inputs {
  Tensor query;
  // Where the user gave no other file, these are missing and the query, or the
  // key, stands for them.
  std::optional<Tensor> own_key;
  std::optional<Tensor> own_value;

  const Tensor& key() const { return own_key ? *own_key : query; }
  const Tensor& value() const { return own_value ? *own_value : key(); }
};

bool has_inputs(const AttentionFlags& flags);

// Throws UsageError if the files that are named do not go together.
Inputs load_inputs(const AttentionFlags& flags);

// The tensor of `flag`. Throws InvalidArgument where it is of bool.
Tensor load_numbers(const std::string& place, const char* flag);

// A heat map goes to the screen if it is asked for, or if nothing else is.
bool wants_picture(const AttentionFlags& flags);

// Throws UsageError for flags that do not go together, and IoError if the
// output files cannot be what they are said to be.
void check_flags(const AttentionFlags& flags);

// Writes a result to its file, if it has one, and says so.
void save_output(const std::string& place, const char* name,
                 const Tensor& tensor);

// An empty picture, as wide as the screen. The words of flags.text name the
// keys, the queries or both, whichever there are as many of; `more_keys` name
// the last keys. Throws InvalidArgument if the words fit neither.
HeatMaps make_picture(const HeatMaps::Sizes& sizes, const AttentionFlags& flags,
                      const std::vector<std::string>& more_keys = {});

}  // namespace regard::cli
