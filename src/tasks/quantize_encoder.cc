// SPDX-License-Identifier: Apache-2.0
// Folders of models with matrices of fewer bits.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <system_error>

#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/quantize.h"
#include "tasks/encoder_weights.h"
#include "tasks/rounded_state.h"
#include "text/field.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace fs = std::filesystem;

namespace {
constexpr const char* kWeightsFile = "model.safetensors";
}

std::vector<QuantizedTensor> quantize_encoder(const fs::path& from,
                                              const fs::path& to,
                                              const QuantizeOptions& options) {
  constexpr const char* kWhere = "quantize_encoder";
  check_quantize(to, options, kWhere);
  const EncoderFolder folder = read_encoder_folder(from);
  const SafetensorsFile file = SafetensorsFile::open(folder.weights);
  const std::vector<std::string> matrices = encoder_matrices(file, folder);
  const RoundedState rounded = round_matrices(
      file,
      [&](const std::string& name) {
        return std::binary_search(matrices.begin(), matrices.end(), name);
      },
      options, kWhere);
  save_rounded(from, to, folder.weights, true, rounded, file, options, kWhere);
  return rounded.reports;
}

std::string trained_kind(const fs::path& folder) {
  constexpr const char* kWhere = "trained_kind";
  const fs::path config = folder / "config.json";
  std::error_code error;
  if (!fs::exists(config, error)) return {};
  const std::string where = std::string(kWhere) + ": '" + config.string() + "'";
  const auto json = text::parse_json(io::read_regular(config, kWhere), where);
  const std::string kind = text::Field(json, where).text("kind", "");
  return kind.starts_with("regard ") ? kind : std::string();
}

ops::WeightStorage stored_weights(const fs::path& folder) {
  const fs::path file = folder / kWeightsFile;
  return io::is_there(file) ? codes_of(SafetensorsFile::open(file))
                            : ops::WeightStorage::kFloat32;
}

std::vector<QuantizedTensor> quantize_trained(const fs::path& from,
                                              const fs::path& to,
                                              const QuantizeOptions& options) {
  constexpr const char* kWhere = "quantize_trained";
  check_quantize(to, options, kWhere);
  require(!trained_kind(from).empty(), kWhere,
          "the config.json of a model that was trained here names its kind; "
          "that of ",
          io::in_quotes(from.string()), " does not");
  const fs::path weights = from / kWeightsFile;
  const SafetensorsFile file = SafetensorsFile::open(weights);
  // What is multiplied; tables are looked up, and a table that is multiplied,
  // too, is looked up as well.
  constexpr std::array<std::string_view, 5> kMatrices = {
      "in_proj_weight", "out_proj.weight", "linear1.weight", "linear2.weight",
      "output.weight"};
  const RoundedState rounded = round_matrices(
      file,
      [&](const std::string& name) {
        return std::any_of(
            kMatrices.begin(), kMatrices.end(),
            [&](std::string_view ending) { return name.ends_with(ending); });
      },
      options, kWhere);
  save_rounded(from, to, weights, false, rounded, file, options, kWhere);
  return rounded.reports;
}

}  // namespace regard::tasks
