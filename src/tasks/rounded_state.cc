// SPDX-License-Identifier: Apache-2.0
#include "tasks/rounded_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"
#include "io/quote.h"
#include "io/read_file.h"
#include "ops/quantised_weights.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
constexpr float kLargestHalf = 65504;

bool is_float(DType type) {
  return type == DType::kFloat32 || type == DType::kFloat16 ||
         type == DType::kBFloat16;
}

// A tensor of the file in float32.
std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  const auto widen = [&](const auto& from) {
    std::transform(from.begin(), from.end(), values.begin(),
                   [](const auto& x) { return static_cast<float>(x); });
  };
  switch (tensor.dtype()) {
    case DType::kFloat32:
      widen(tensor.values<float>());
      break;
    case DType::kFloat16:
      widen(tensor.values<Float16>());
      break;
    default:
      widen(tensor.values<BFloat16>());
  }
  return values;
}

// One matrix as codes, scales and perhaps minima, with the change in `report`.
void add_codes(const std::string& name, const Tensor& weight, bool int8,
               const char* where, QuantizedTensor& report, StateDict& to) {
  const std::vector<float> values = floats_of(weight);
  // NaN is not at most anything.
  const float largest = int8 ? std::numeric_limits<float>::max() : kLargestHalf;
  require(std::all_of(values.begin(), values.end(),
                      [&](float x) { return std::abs(x) <= largest; }),
          where, "weights must be numbers from -", largest, " to ", largest,
          "; some of ", io::in_quotes(name), " are not");
  const std::int64_t out = weight.shape()[0], in = weight.shape()[1];
  const kernels::QuantisedLayout layout =
      int8 ? ops::int8_layout(in) : ops::int4_layout(in);
  const std::int64_t groups = layout.groups();
  Tensor codes(int8 ? DType::kInt8 : DType::kUInt8,
               Shape{out, int8 ? in : in / 2});
  const DType scale_type = int8 ? DType::kFloat32 : DType::kFloat16;
  Tensor scales(scale_type, Shape{out, groups});
  Tensor minima(scale_type, Shape{out, groups});
  std::vector<std::int8_t> row_codes(static_cast<std::size_t>(in));
  std::vector<float> row_scales(static_cast<std::size_t>(groups));
  std::vector<float> row_minima(row_scales);
  const ops::GroupedWeights::Row row{row_codes.data(), row_scales.data(),
                                     row_minima.data()};
  double change = 0, power = 0;
  for (std::int64_t r = 0; r < out; ++r) {
    const float* const from = values.data() + r * in;
    int8 ? ops::round_to_int8(from, in, row)
         : ops::round_to_int4(from, in, row);
    for (std::int64_t i = 0; i < in; ++i) {
      const std::int64_t g = i / layout.group;
      const double now = double{row.scales[g]} * row.codes[i] +
                         (int8 ? 0.0 : double{row.minima[g]});
      change += (now - double{from[i]}) * (now - double{from[i]});
      power += double{from[i]} * double{from[i]};
    }
    if (int8) {
      std::memcpy(codes.values<std::int8_t>().data() + r * in, row.codes,
                  static_cast<std::size_t>(in));
      std::copy_n(row.scales, groups,
                  scales.values<float>().data() + r * groups);
      continue;
    }
    std::uint8_t* const halves =
        codes.values<std::uint8_t>().data() + r * in / 2;
    for (std::int64_t i = 0; i < in; i += 2) {
      halves[i / 2] =
          static_cast<std::uint8_t>(row.codes[i] | (row.codes[i + 1] << 4));
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      scales.values<Float16>()[r * groups + g] = Float16(row.scales[g]);
      minima.values<Float16>()[r * groups + g] = Float16(row.minima[g]);
    }
  }
  const auto count = static_cast<double>(values.size());
  report.error = std::sqrt(change / count);
  report.size = std::sqrt(power / count);
  report.to = int8 ? "int8" : "int4";
  to[name + kScalesEnding] = std::move(scales);
  if (!int8) to[name + kMinimaEnding] = std::move(minima);
  to[name] = std::move(codes);
}

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.size() * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

void copy_settings(const fs::path& from, const fs::path& to, bool deep,
                   const char* where) {
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path name = entry.path().filename();
    if (name.string().starts_with(".")) continue;
    if (entry.is_directory()) {
      if (deep) copy_settings(entry.path(), to / name, deep, where);
      continue;
    }
    constexpr const char* kKept[] = {".json", ".txt", ".model", ".md"};
    // What stands beside the weights of captioners and recommenders.
    constexpr const char* kNamed[] = {"LICENSE", "features.safetensors",
                                      "interactions.tsv"};
    const bool kept =
        std::any_of(std::begin(kNamed), std::end(kNamed),
                    [&](const char* one) { return name == one; }) ||
        std::any_of(
            std::begin(kKept), std::end(kKept),
            [&](const char* ending) { return name.extension() == ending; });
    if (!kept || name.string().ends_with(".index.json")) continue;
    fs::create_directories(to);
    io::AtomicFile copy(to / name, where);
    copy.write(io::read_file(entry.path(), where));
    copy.commit();
  }
}

// Codes of 8 bits, or of 4 in pairs, of element i of a row.
int code_of(const Tensor& codes, std::int64_t row_bytes, std::int64_t row,
            std::int64_t i) {
  if (codes.dtype() == DType::kInt8) {
    return codes.values<std::int8_t>()[row * row_bytes + i];
  }
  const int both = codes.values<std::uint8_t>()[row * row_bytes + i / 2];
  return i % 2 == 0 ? both & 15 : both >> 4;
}

Tensor widened(const std::string& name, const Tensor& codes,
               const Tensor& scales, const Tensor* minima, const char* where) {
  const bool four_bits = codes.dtype() == DType::kUInt8;
  const bool is_matrix = codes.shape().size() == 2;
  const std::int64_t out = is_matrix ? codes.shape()[0] : 0;
  const std::int64_t row_bytes = is_matrix ? codes.shape()[1] : 0;
  const std::int64_t in = four_bits ? 2 * row_bytes : row_bytes;
  const std::int64_t groups =
      scales.shape().size() == 2 ? scales.shape()[1] : 0;
  const bool fits =
      (four_bits || codes.dtype() == DType::kInt8) && in > 0 && groups > 0 &&
      in % groups == 0 && scales.shape()[0] == out &&
      is_float(scales.dtype()) && (minima != nullptr) == four_bits &&
      (!four_bits ||
       (minima->shape() == scales.shape() && is_float(minima->dtype())));
  if (!fits) {
    throw_parse_error(where, "the scales of ", io::in_quotes(name), ", ",
                      to_string(codes.dtype()), " ", to_string(codes.shape()),
                      ", do not fit it: they are ", to_string(scales.dtype()),
                      " ", to_string(scales.shape()));
  }
  const std::vector<float> scale = floats_of(scales);
  const std::vector<float> minimum =
      minima == nullptr ? std::vector<float>() : floats_of(*minima);
  Tensor values(Shape{out, in});
  float* to = values.values<float>().data();
  for (std::int64_t r = 0; r < out; ++r) {
    for (std::int64_t i = 0; i < in; ++i) {
      const auto g = static_cast<std::size_t>(r * groups + i / (in / groups));
      const float value =
          scale[g] * static_cast<float>(code_of(codes, row_bytes, r, i));
      *to++ = minimum.empty() ? value : value + minimum[g];
    }
  }
  return values;
}

}  // namespace

void check_quantize(const fs::path& to, const QuantizeOptions& options,
                    const char* where) {
  require(options.to == ops::WeightStorage::kInt8 ||
              options.to == ops::WeightStorage::kInt4,
          where, "weights become int8 or int4");
  std::error_code error;
  require(!fs::exists(to, error), where,
          "the new folder must not be there yet; ", io::in_quotes(to.string()),
          " is");
}

RoundedState round_matrices(const SafetensorsFile& file,
                            FunctionRef<bool(const std::string&)> is_matrix,
                            const QuantizeOptions& options, const char* where) {
  const bool int8 = options.to == ops::WeightStorage::kInt8;
  RoundedState rounded;
  const std::vector<std::string> names = file.names();
  for (const std::string& name : names) {
    Tensor tensor = file.tensor(name);
    QuantizedTensor report{.name = name,
                           .from = std::string(to_string(tensor.dtype())),
                           .to = std::string(to_string(tensor.dtype())),
                           .bytes_before = bytes_of(tensor),
                           .bytes_after = bytes_of(tensor)};
    const std::int64_t group = int8 ? 64 : 32;
    const bool rounds = is_float(tensor.dtype()) &&
                        tensor.shape().size() == 2 &&
                        tensor.shape()[1] % group == 0 && is_matrix(name);
    if (rounds) {
      add_codes(name, tensor, int8, where, report, rounded.state);
      report.bytes_after =
          bytes_of(rounded.state.at(name)) +
          bytes_of(rounded.state.at(name + kScalesEnding)) * (int8 ? 1 : 2);
    } else {
      rounded.state[name] = std::move(tensor);
    }
    rounded.reports.push_back(std::move(report));
    if (options.progress) {
      options.progress(std::ssize(rounded.reports), std::ssize(names));
    }
  }
  return rounded;
}

void save_rounded(const fs::path& from, const fs::path& to,
                  const fs::path& weights, bool deep,
                  const RoundedState& rounded, const SafetensorsFile& file,
                  const QuantizeOptions& options, const char* where) {
  // In a folder beside it, which becomes `to` when it is whole.
  const fs::path whole = to.has_filename() ? to : to.parent_path();
  fs::path part = whole;
  part += ".part";
  std::error_code ignored;
  fs::remove_all(part, ignored);  // of a run that was killed
  try {
    copy_settings(from, part, deep, where);
    const fs::path name = part / fs::relative(weights, from);
    fs::create_directories(name.parent_path());
    auto metadata = file.metadata();
    metadata[kWeightsEntry] =
        options.to == ops::WeightStorage::kInt8 ? "int8" : "int4";
    save_safetensors(name, rounded.state, metadata);
    fs::rename(part, whole);
  } catch (const fs::filesystem_error& refused) {
    fs::remove_all(part, ignored);
    throw_io_error(where, refused.what());
  } catch (...) {
    fs::remove_all(part, ignored);
    throw;
  }
}

ops::WeightStorage codes_of(const SafetensorsFile& file) {
  const auto metadata = file.metadata();
  const auto entry = metadata.find(kWeightsEntry);
  if (entry == metadata.end()) return ops::WeightStorage::kFloat32;
  return entry->second == "int8"   ? ops::WeightStorage::kInt8
         : entry->second == "int4" ? ops::WeightStorage::kInt4
                                   : ops::WeightStorage::kFloat32;
}

ops::WeightStorage weights_for(ops::WeightStorage asked,
                               ops::WeightStorage stored, const char* where) {
  if (asked != ops::WeightStorage::kAsStored) return asked;
  require(stored != ops::WeightStorage::kFloat32, where,
          "as-stored is for folders that regard quantize wrote; the weights of "
          "this model can be float32, bfloat16, int8 or int4");
  return stored;
}

void widen_codes(StateDict& state, const char* where) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) {
    if (name.ends_with(kScalesEnding)) {
      names.push_back(
          name.substr(0, name.size() - std::string(kScalesEnding).size()));
    }
  }
  for (const std::string& name : names) {
    const auto codes = state.find(name);
    if (codes == state.end()) continue;  // a tensor that is called so
    const auto scales = state.find(name + kScalesEnding);
    const auto minima = state.find(name + kMinimaEnding);
    codes->second =
        widened(name, codes->second, scales->second,
                minima == state.end() ? nullptr : &minima->second, where);
    state.erase(scales);
    if (minima != state.end()) state.erase(minima);
  }
}

}  // namespace regard::tasks
