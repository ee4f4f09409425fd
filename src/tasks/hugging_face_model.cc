// SPDX-License-Identifier: Apache-2.0
// Language models from Hugging Face folders.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/language_model.h"
#include "tasks/language_files.h"
#include "text/field.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using text::Field;

constexpr const char* kWhere = "load_language_model";

std::string where_of(const fs::path& path) {
  return std::string(kWhere) + ": '" + path.string() + "'";
}

// GGUF's name of a part of a layer, and Hugging Face's.
struct PartName {
  const char* ours;
  const char* theirs;
};
constexpr std::array<PartName, 12> kParts = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
}};
// Where Gemma 2 and 3, Phi-3 and GPT-2 differ from that.
constexpr std::array<PartName, 3> kSandwichParts = {{
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
}};
constexpr std::array<PartName, 1> kPhi3Parts = {{
    {"ffn_up", "mlp.gate_up_proj"},
}};
constexpr std::array<PartName, 6> kGpt2Parts = {{
    {"attn_norm", "ln_1"},
    {"attn_qkv", "attn.c_attn"},
    {"attn_output", "attn.c_proj"},
    {"ffn_norm", "ln_2"},
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
}};

template <std::size_t N>
const char* find_part(const std::array<PartName, N>& parts,
                      const std::string& ours) {
  for (const PartName& part : parts) {
    if (ours == part.ours) return part.theirs;
  }
  return nullptr;
}

const char* part_name(const std::string& type, const std::string& ours) {
  if (type == "gpt2") return find_part(kGpt2Parts, ours);
  const char* theirs = nullptr;
  if (type == "gemma2" || type == "gemma3_text") {
    theirs = find_part(kSandwichParts, ours);
  }
  if (type == "phi3") theirs = find_part(kPhi3Parts, ours);
  return theirs != nullptr ? theirs : find_part(kParts, ours);
}

// All tensors of a folder. The files stay open as long as a parameter does.
using Files = std::vector<std::shared_ptr<const SafetensorsFile>>;

Files open_files(const fs::path& folder) {
  const fs::path whole = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::set<std::string> names;
  if (io::is_there(index) && !io::is_there(whole)) {
    const std::string where = where_of(index);
    const auto json = text::parse_json(io::read_regular(index, kWhere), where);
    const Field map = Field(json, where)["weight_map"];
    for (const std::string& tensor : map.keys()) {
      const Field file = map[tensor.c_str()];
      const std::string& name = file.text();
      // A part lies beside its index, nowhere else.
      if (name.empty() || name.find('/') != std::string::npos ||
          name.find('\\') != std::string::npos || name[0] == '.') {
        file.fail("must be the name of a file in the folder; it is ",
                  io::in_quotes(name));
      }
      names.insert(name);
    }
  } else {
    names.insert("model.safetensors");
  }
  Files files;
  for (const std::string& name : names) {
    files.push_back(std::make_shared<const SafetensorsFile>(
        SafetensorsFile::open(folder / name)));
  }
  return files;
}

template <typename Half>
void widen(std::span<const std::byte> from, std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Half half;
    std::memcpy(&half.bits, from.data() + 2 * i, 2);
    to[i] = static_cast<float>(half);
  }
}

Tensor as_float(const SafetensorsFile& file, const std::string& name) {
  const auto data = file.data(name);
  Tensor tensor(file.shape(name));
  const std::span<float> to = tensor.values<float>();
  switch (file.dtype(name)) {
    case DType::kFloat16:
      widen<Float16>(data, to);
      break;
    case DType::kBFloat16:
      widen<BFloat16>(data, to);
      break;
    default:
      std::memcpy(to.data(), data.data(), data.size());
  }
  return tensor;
}

Tensor transposed(const Tensor& matrix) {
  const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  Tensor result({columns, rows});
  const auto from = matrix.view<float, 2>();
  const auto to = result.view<float, 2>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) to(c, r) = from(r, c);
  }
  return result;
}

// Not parameters: what old versions saved of masks and angles, and a copy of
// the embedding.
bool is_left_out(const std::string& name, const std::string& type, bool tied) {
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (tied && name == "lm_head.weight") return true;
  return type == "gpt2" &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

void add_parameter(const std::shared_ptr<const SafetensorsFile>& file,
                   const std::string& where, const std::string& name,
                   const std::string& type, ParameterSource& source) {
  const DType dtype = file->dtype(name);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 &&
      dtype != DType::kBFloat16) {
    throw_parse_error(where.c_str(), io::in_quotes(name),
                      " must be float32, float16 or bfloat16; it is ",
                      to_string(dtype));
  }
  Parameter parameter{file->shape(name),
                      [file, name] { return as_float(*file, name); }};
  const auto plain = parameter.load;
  // Conv1D of GPT-2 has its weights as [in, out].
  if (type == "gpt2" && parameter.shape.size() == 2 &&
      name.find(".c_") != std::string::npos) {
    std::swap(parameter.shape[0], parameter.shape[1]);
    parameter.load = [plain] { return transposed(plain()); };
  }
  // Gemma's norms multiply by 1 + weight.
  if (type.starts_with("gemma") && name.ends_with("norm.weight")) {
    parameter.load = [plain] {
      Tensor weight = plain();
      for (float& value : weight.values<float>()) value = 1.0f + value;
      return weight;
    };
  }
  if (!source.parameters.emplace(name, std::move(parameter)).second) {
    throw_parse_error(where.c_str(), "the tensor ", io::in_quotes(name),
                      " is in two files");
  }
}

Json read_json(const fs::path& path) {
  if (!io::is_there(path)) return {};
  return text::parse_json(io::read_regular(path, kWhere), where_of(path));
}

}  // namespace

std::string hugging_face_name(const std::string& type,
                              const std::string& name) {
  const bool gpt2 = type == "gpt2";
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) {
    const std::size_t dot = name.rfind('.');
    const std::string part = name.substr(0, dot), kind = name.substr(dot);
    if (part == "token_embd") return (gpt2 ? "wte" : "embed_tokens") + kind;
    if (part == "position_embd") return "wpe" + kind;
    if (part == "output_norm") return (gpt2 ? "ln_f" : "norm") + kind;
    return "lm_head" + kind;
  }
  const std::size_t number = kLayer.size();
  const std::size_t dot = name.find('.', number), last = name.rfind('.');
  const char* theirs = part_name(type, name.substr(dot + 1, last - dot - 1));
  if (theirs == nullptr) return "";
  return (gpt2 ? "h." : "layers.") + name.substr(number, dot + 1 - number) +
         theirs + name.substr(last);
}

LanguageModel LanguageModel::from_folder(const fs::path& folder,
                                         ops::WeightStorage weights) {
  const fs::path path = folder / "config.json";
  const std::string text = io::read_regular(path, kWhere);
  const LanguageModelConfig config =
      parse_hugging_face_config(text, where_of(path));
  const auto json = text::parse_json(text, where_of(path));
  const std::string& type = json.at("model_type").text();
  const std::string where = where_of(folder);
  ParameterSource source;
  for (const auto& file : open_files(folder)) {
    for (const std::string& name : file->names()) {
      if (is_left_out(name, type, config.tied_output)) continue;
      add_parameter(file, where, name, type, source);
    }
  }
  // A model that was saved without its output layer has no prefix.
  const std::string embedding = hugging_face_name(type, "token_embd.weight");
  const std::string prefix = source.parameters.contains(embedding) ? ""
                             : type == "gpt2" ? "transformer."
                                              : "model.";
  source.name_of = [type, prefix](const std::string& name) {
    const std::string theirs = hugging_face_name(type, name);
    return theirs.starts_with("lm_head") ? theirs : prefix + theirs;
  };
  return model_from(where, config, source, weights);
}

std::vector<std::int32_t> folder_stop_tokens(const fs::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Json json = read_json(folder / name);
    const Field file(json, where_of(folder / name));
    if (!file.has("eos_token_id")) continue;
    const Field ends = file["eos_token_id"];
    if (!ends.is_array()) return {ends.id()};
    std::vector<std::int32_t> ids;
    ends.for_each([&](const Field& id) { ids.push_back(id.id()); });
    return ids;
  }
  return {};
}

std::string folder_chat_template(const fs::path& folder) {
  if (io::is_there(folder / "chat_template.jinja")) {
    return io::read_regular(folder / "chat_template.jinja", kWhere);
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const Json json = read_json(folder / name);
    const Field file(json, where_of(folder / name));
    if (!file.has("chat_template")) continue;
    const Field given = file["chat_template"];
    if (!given.is_array()) return given.text();
    // Several with names: the one for plain chats is called default.
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Field one = given.element(i);
      if (one["name"].text() == "default") return one["template"].text();
    }
    given.fail("has no template with the name 'default'");
  }
  return "";
}

}  // namespace regard::tasks
