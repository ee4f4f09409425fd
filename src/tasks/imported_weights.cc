// SPDX-License-Identifier: Apache-2.0
#include "tasks/imported_weights.h"

#include <algorithm>
#include <cmath>

#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "tasks/imported_translator.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "Translator::load";

template <typename T>
void widen(const Tensor& from, Tensor& to) {
  const auto values = from.values<T>();
  std::transform(values.begin(), values.end(), to.values<float>().begin(),
                 [](T value) { return static_cast<float>(value); });
}

}  // namespace

Tensor stacked(std::initializer_list<const Tensor*> parts) {
  Shape shape = (*parts.begin())->shape();
  require(!shape.empty(), kWhere, "a weight must have rows; it is a number");
  shape[0] = 0;
  for (const Tensor* part : parts) {
    Shape like = part->shape();
    require(like.size() == shape.size(), kWhere,
            "weights that stand together must have as many columns");
    shape[0] += like[0];
    like[0] = shape[0];
    require(like == shape, kWhere,
            "weights that stand together must have as many columns; they are ",
            ShapeText{shape}, " and ", ShapeText{part->shape()});
  }
  Tensor all(shape);
  auto to = all.values<float>().begin();
  for (const Tensor* part : parts) {
    const auto from = part->values<float>();
    to = std::copy(from.begin(), from.end(), to);
  }
  return all;
}

Tensor rows_from(const Tensor& matrix, std::int64_t first) {
  Shape shape = matrix.shape();
  require(shape.size() == 2 && shape[0] > first, kWhere,
          "a table must have more than ", first, " rows; it is ",
          ShapeText{shape});
  shape[0] -= first;
  Tensor rest(shape);
  const auto from = matrix.values<float>();
  std::copy(from.begin() + first * shape[1], from.end(),
            rest.values<float>().begin());
  return rest;
}

Tensor as_float32(const Tensor& tensor, const std::string& name) {
  if (tensor.dtype() == DType::kFloat32) return tensor;
  Tensor wide(tensor.shape());
  if (tensor.dtype() == DType::kFloat16) {
    widen<Float16>(tensor, wide);
  } else if (tensor.dtype() == DType::kBFloat16) {
    widen<BFloat16>(tensor, wide);
  } else {
    throw_parse_error(kWhere, "weights must be float32, float16 or bfloat16; ",
                      io::in_quotes(name), " is ", to_string(tensor.dtype()));
  }
  return wide;
}

Json read_json_object(const std::filesystem::path& path) {
  const std::string where = std::string(kWhere) + ": '" + path.string() + "'";
  auto json = text::parse_json(io::read_regular(path, kWhere), where);
  if (!json.is_object()) {
    throw_parse_error(kWhere, "'", path.string(), "' is no object of JSON");
  }
  return json;
}

std::int64_t size_in(const Json& config, const char* key,
                     const std::filesystem::path& path, std::int64_t fallback) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  const Json* const found = config.find(key);
  const bool missing = found == nullptr || found->is_null();
  if (missing && fallback > 0) return fallback;
  if (missing || !found->is_integer() || found->get<std::int64_t>() < 1 ||
      found->get<std::int64_t>() > kMost) {
    throw_parse_error(kWhere, "'", path.string(), "': ", key,
                      " must be a whole number from 1 to ", kMost, "; got ",
                      missing ? "nothing" : io::in_quotes(found->dump()));
  }
  return found->get<std::int64_t>();
}

std::string text_in(const Json& config, const char* key,
                    const std::filesystem::path& path,
                    const std::string& fallback) {
  const Json* const found = config.find(key);
  if (found == nullptr || found->is_null()) return fallback;
  if (!found->is_string()) {
    throw_parse_error(kWhere, "'", path.string(), "': ", key,
                      " must be a text; got ", io::in_quotes(found->dump()));
  }
  return found->get<std::string>();
}

void check_width(const StateDict& weights, std::int64_t dim) {
  const std::string name = "encoder.layers.0.self_attn.in_proj_weight";
  const Shape wanted = {3 * dim, dim};
  const Shape& shape = weights.at(name).shape();
  require(shape == wanted, kWhere, name, " must be ", ShapeText{wanted},
          " for embeddings of ", dim, " columns; it is ", ShapeText{shape});
}

Tensor split_sinusoids(std::int64_t places, std::int64_t dim,
                       std::int64_t first, double divisor) {
  Tensor table({places, dim});
  const auto rows = table.view<float, 2>();
  const std::int64_t half = dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double rate = std::pow(10000.0, -static_cast<double>(i) / divisor);
    for (std::int64_t p = 0; p < places; ++p) {
      const double angle = static_cast<double>(p + first) * rate;
      rows.at(p)[i] = static_cast<float>(std::sin(angle));
      rows.at(p)[half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

}  // namespace regard::tasks
