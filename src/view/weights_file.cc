// SPDX-License-Identifier: Apache-2.0
// Weights and tokens from files.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/safetensors.h"
#include "regard/tensor/tensor.h"
#include "regard/view/imported_weights.h"

namespace regard::view {
namespace {

constexpr const char* kWhere = "view::open_weights";
constexpr std::int64_t kMostLayers = 10000;

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
         dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// "encoder.11" is layer 11 of "encoder"; a name of digits alone is a layer of
// "layer".
struct LayerName {
  std::string section;
  std::int64_t layer = -1;  // none
};

LayerName split_name(const std::string& name) {
  const std::size_t last =
      name.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  std::int64_t layer = 0;
  const char* const begin = name.data() + last;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, layer);
  if (begin == end || error != std::errc() || layer >= kMostLayers) {
    return {name, -1};
  }
  std::string section = name.substr(0, last);
  while (!section.empty() && (section.back() == '.' || section.back() == '_' ||
                              section.back() == '-')) {
    section.pop_back();
  }
  return {section.empty() ? "layer" : section, layer};
}

// One layer's weights: which tensor, and which part of it.
struct Place {
  std::string tensor;
  std::int64_t first = 0;  // element
};

struct Found {
  std::int64_t heads = 0, rows = 0, columns = 0;
  std::map<std::int64_t, Place> layers;
};

template <typename T>
void widen(const std::byte* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(T),
                sizeof(T));
    to[i] = static_cast<float>(value);
  }
}

// The elements from `first` on, as float.
void read_floats(const SafetensorsFile& file, const Place& place,
                 std::span<float> to) {
  const DType dtype = file.dtype(place.tensor);
  const std::byte* const from =
      file.data(place.tensor).data() +
      static_cast<std::size_t>(place.first) * size_of(dtype);
  const auto count = static_cast<std::int64_t>(to.size());
  switch (dtype) {
    case DType::kFloat64:
      return widen<double>(from, count, to.data());
    case DType::kFloat16:
      return widen<Float16>(from, count, to.data());
    case DType::kBFloat16:
      return widen<BFloat16>(from, count, to.data());
    default:
      return widen<float>(from, count, to.data());
  }
}

void add_tensor(const SafetensorsFile& file, const std::string& name,
                const std::string& path, std::map<std::string, Found>& found) {
  Shape shape = file.shape(name);
  if (!is_floating(file.dtype(name)) || shape.size() < 2 || shape.size() > 4) {
    throw_parse_error(kWhere,
                      "weights are floating tensors of 2 to 4 "
                      "dimensions; '",
                      path, "' has ", name, ", ", to_string(file.dtype(name)),
                      " ", to_string(shape));
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    throw_parse_error(kWhere, "weights must not be empty; '", path, "' has ",
                      name, " of ", to_string(shape));
  }
  LayerName place = split_name(name);
  const bool whole = shape.size() == 4 && (place.layer < 0 || shape[0] > 1);
  if (whole) place = {name, -1};
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  if (shape[0] > kMostLayers) {
    throw_parse_error(kWhere, "there may be at most ", kMostLayers, " layers; ",
                      name, " of '", path, "' is ", to_string(shape));
  }
  Found& section = found[place.section];
  if (section.layers.empty()) {
    section.heads = shape[1];
    section.rows = shape[2];
    section.columns = shape[3];
  }
  if (section.heads != shape[1] || section.rows != shape[2] ||
      section.columns != shape[3]) {
    throw_parse_error(kWhere,
                      "the layers of a section must have one shape; "
                      "in '",
                      path, "' those of '", place.section, "' differ at ", name,
                      ", ", to_string(shape));
  }
  const std::int64_t first = std::max<std::int64_t>(place.layer, 0);
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    const Place layer{name, i * shape[1] * shape[2] * shape[3]};
    if (!section.layers.emplace(first + i, layer).second) {
      throw_parse_error(kWhere, "a layer must come once; '", path,
                        "' has layer ", first + i, " of '", place.section,
                        "' again as ", name);
    }
  }
}

ImportedSection imported(const std::string& name, Found found,
                         std::shared_ptr<const SafetensorsFile> file) {
  const auto memory =
      std::make_shared<Tensor>(Shape{found.heads, found.rows, found.columns});
  ImportedSection section;
  section.name = name;
  section.layers = static_cast<std::int64_t>(found.layers.size());
  section.heads = found.heads;
  section.rows = found.rows;
  section.columns = found.columns;
  section.layer = [file = std::move(file), layers = std::move(found.layers),
                   memory](std::int64_t layer) {
    read_floats(*file, layers.at(layer), memory->values<float>());
    const Tensor& read = *memory;
    return read.view<float, 3>();
  };
  return section;
}

std::vector<std::string> token_list(const Json& list,
                                    const std::string& where) {
  std::vector<std::string> tokens;
  const bool strings = list.is_array() && !list.empty() &&
                       std::all_of(list.begin(), list.end(),
                                   [](const auto& t) { return t.is_string(); });
  if (!strings) {
    throw_parse_error("view::parse_tokens",
                      "tokens are a list of strings that is not empty; '",
                      where, "' has something else");
  }
  for (const Json& token : list) tokens.push_back(token.text());
  return tokens;
}

}  // namespace

std::vector<ImportedSection> open_weights(const std::filesystem::path& path) {
  const auto file =
      std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path));
  std::map<std::string, Found> found;
  for (const std::string& name : file->names()) {
    add_tensor(*file, name, path.string(), found);
  }
  if (found.empty()) {
    throw_parse_error(kWhere, "there must be weights; '", path.string(),
                      "' has no tensor");
  }
  std::vector<ImportedSection> sections;
  for (auto& [name, section] : found) {
    const std::int64_t last = section.layers.rbegin()->first;
    if (last >= static_cast<std::int64_t>(section.layers.size())) {
      throw_parse_error(kWhere, "layers must be numbered 0, 1, ...; '",
                        path.string(), "' has ", section.layers.size(), " of '",
                        name, "' up to ", last);
    }
    sections.push_back(imported(name, std::move(section), file));
  }
  return sections;
}

Tokens parse_tokens(std::string_view json, const std::string& where) {
  Json parsed;
  const char* what = "something else";
  try {
    parsed = Json::parse(json);
  } catch (const JsonError&) {
    what = "not JSON";
  }
  if (parsed.is_array()) return {token_list(parsed, where), {}, false};
  const auto pair = [&parsed](const char* source, const char* target) {
    return parsed.is_object() && parsed.size() == 2 &&
           parsed.contains(source) && parsed.contains(target);
  };
  if (pair("source", "target")) {
    return {token_list(parsed.at("source"), where),
            token_list(parsed.at("target"), where), false};
  }
  if (pair("keys", "queries")) {
    return {token_list(parsed.at("keys"), where),
            token_list(parsed.at("queries"), where), true};
  }
  throw_parse_error(
      "view::parse_tokens",
      "tokens are [\"a\", ...], {\"source\": [...], \"target\": [...]} or "
      "{\"queries\": [...], \"keys\": [...]}; '",
      where, "' is ", what);
}

}  // namespace regard::view
