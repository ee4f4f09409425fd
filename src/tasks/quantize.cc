// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "io/quote.h"
#include "ops/quantised_weights.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/gguf.h"

namespace regard::tasks {
namespace {

constexpr std::int64_t kGroup = 32;
constexpr float kLargestHalf = 65504;

void write_half(float value, std::byte* to) {
  const Float16 half(value);
  std::memcpy(to, &half.bits, sizeof(half.bits));
}

// Q8_0: a half float as scale, and 32 codes. The codes are those of the scale
// as it is kept.
constexpr std::size_t kInt8Block = 2 + 32;
void round_to_q8_0(const float* weights, std::byte* to) {
  float most = 0;
  for (std::int64_t i = 0; i < kGroup; ++i) {
    most = std::max(most, std::abs(weights[i]));
  }
  // The largest must not be cut off where the scale was rounded down.
  Float16 half(most / 127.0f);
  if (static_cast<float>(half) * 127.5f < most) ++half.bits;
  const auto scale = static_cast<float>(half);
  std::memcpy(to, &half.bits, sizeof(half.bits));
  for (std::int64_t i = 0; i < kGroup; ++i) {
    const float code = scale > 0 ? std::nearbyint(weights[i] / scale) : 0.0f;
    to[2 + i] = static_cast<std::byte>(
        static_cast<std::int8_t>(std::clamp(code, -127.0f, 127.0f)));
  }
}

// Q4_1: half floats as scale and minimum, and 32 codes, i and i + 16 in a byte.
constexpr std::size_t kInt4Block = 2 + 2 + 16;
void round_to_q4_1(const float* weights, std::byte* to) {
  std::int8_t codes[kGroup];
  float scale = 0, minimum = 0;
  ops::round_to_int4(weights, kGroup, {codes, &scale, &minimum});
  write_half(scale, to);
  write_half(minimum, to + 2);
  for (int i = 0; i < 16; ++i) {
    to[4 + i] = static_cast<std::byte>(codes[i] | (codes[i + 16] << 4));
  }
}

std::vector<std::byte> rounded(std::span<const float> weights, bool int8) {
  const std::size_t block = int8 ? kInt8Block : kInt4Block;
  std::vector<std::byte> blocks(weights.size() / kGroup * block);
  const auto groups = static_cast<std::int64_t>(weights.size() / kGroup);
  constexpr std::int64_t kPart = 4096;  // groups a task
  parallel_for({}, (groups + kPart - 1) / kPart, [&](std::int64_t part) {
    const std::int64_t end = std::min(groups, (part + 1) * kPart);
    for (std::int64_t g = part * kPart; g < end; ++g) {
      const float* const from = weights.data() + g * kGroup;
      std::byte* const to = blocks.data() + static_cast<std::size_t>(g) * block;
      int8 ? round_to_q8_0(from, to) : round_to_q4_1(from, to);
    }
  });
  return blocks;
}

// The values of such blocks, for the report.
float value_of(const std::byte* blocks, bool int8, std::size_t i) {
  const std::byte* const block =
      blocks + i / kGroup * (int8 ? kInt8Block : kInt4Block);
  const auto half = [&](int at) {
    Float16 value;
    std::memcpy(&value.bits, block + at, sizeof(value.bits));
    return static_cast<float>(value);
  };
  const std::size_t place = i % kGroup;
  if (int8) {
    return half(0) * static_cast<float>(static_cast<std::int8_t>(
                         std::to_integer<std::uint8_t>(block[2 + place])));
  }
  const int byte = std::to_integer<int>(block[4 + place % 16]);
  return half(0) * static_cast<float>(place < 16 ? byte & 15 : byte >> 4) +
         half(2);
}

void measure(std::span<const float> weights, const std::vector<std::byte>& now,
             bool int8, QuantizedTensor& report) {
  double change = 0, power = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double x = weights[i];
    const double off = value_of(now.data(), int8, i) - x;
    change += off * off;
    power += x * x;
  }
  const auto count = static_cast<double>(weights.size());
  report.error = std::sqrt(change / count);
  report.size = std::sqrt(power / count);
}

bool is_table(const std::string& name) {
  return name == "token_embd.weight" || name == "output.weight";
}

// Its type in the new file.
std::string type_for(const GgufFile& file, const std::string& name,
                     ops::WeightStorage to) {
  const Shape& shape = file.shape(name);
  const bool rounds = shape.size() == 2 && shape[1] % kGroup == 0 &&
                      name.ends_with(".weight") &&
                      name != "position_embd.weight";
  if (!rounds) return std::string(file.type(name));
  return to == ops::WeightStorage::kInt8 || is_table(name) ? "Q8_0" : "Q4_1";
}

}  // namespace

std::vector<QuantizedTensor> quantize_gguf(const std::filesystem::path& from,
                                           const std::filesystem::path& to,
                                           const QuantizeOptions& options) {
  constexpr const char* kWhere = "quantize_gguf";
  const bool int8 = options.to == ops::WeightStorage::kInt8;
  require(int8 || options.to == ops::WeightStorage::kInt4, kWhere,
          "weights become int8 or int4");
  const GgufFile file = GgufFile::open(from);
  const std::vector<std::string> names = file.names();
  std::vector<QuantizedTensor> reports(names.size());
  std::vector<GgufTensor> tensors;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    QuantizedTensor& report = reports[i];
    report = {.name = name,
              .from = std::string(file.type(name)),
              .to = type_for(file, name, options.to),
              .bytes_before = std::ssize(file.data(name))};
    const auto blocks = [&, i]() -> std::vector<std::byte> {
      QuantizedTensor& made = reports[i];
      const auto old = file.data(made.name);
      std::vector<std::byte> now(old.begin(), old.end());
      if (made.from != made.to) {
        const Tensor weights = file.tensor(made.name);
        const auto values = weights.values<float>();
        // NaN is not at most anything.
        const bool fit = std::all_of(values.begin(), values.end(), [](float x) {
          return std::abs(x) <= kLargestHalf;
        });
        require(fit, kWhere, "weights must be numbers from -", kLargestHalf,
                " to ", kLargestHalf, "; some of ", io::in_quotes(made.name),
                " are not");
        const bool eight = made.to == "Q8_0";
        now = rounded(values, eight);
        measure(values, now, eight, made);
      }
      made.bytes_after = std::ssize(now);
      if (options.progress) {
        options.progress(static_cast<std::int64_t>(i) + 1, std::ssize(reports));
      }
      return now;
    };
    tensors.push_back({name, file.shape(name), report.to, blocks});
  }
  // Numbers that llama.cpp gives to files that are mostly of such a type.
  constexpr std::uint32_t kMostlyQ8 = 7, kMostlyQ41 = 3;
  save_gguf(to, file,
            {{"general.file_type", int8 ? kMostlyQ8 : kMostlyQ41},
             {"general.quantization_version", 2}},
            tensors);
  return reports;
}

double perplexity(const LanguageModel& model,
                  std::span<const std::int32_t> tokens, std::int64_t part,
                  Threads threads) {
  constexpr const char* kWhere = "perplexity";
  require(tokens.size() >= 2, kWhere, "a text has at least two tokens; got ",
          tokens.size());
  require(part >= 2 && part <= model.config().context, kWhere,
          "a part has from 2 tokens to the context, ", model.config().context,
          "; got ", part);
  // Some parts side by side, a token of each at a time.
  constexpr std::int64_t kTogether = 16;
  const std::int64_t all = std::ssize(tokens);
  const std::int64_t parts = (all + part - 1) / part;
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < parts; first += kTogether) {
    const std::int64_t together = std::min(kTogether, parts - first);
    LanguageStateOptions options{.sequences = together,
                                 .cache = KVCacheKind::kPaged,
                                 .threads = threads};
    options.pages = together * (part / options.page_tokens + 1);
    LanguageState state(model, options);
    const auto rest = [&](std::int64_t s, std::int64_t i) {
      const std::int64_t place = (first + s) * part + i;
      return place < all ? tokens.subspan(static_cast<std::size_t>(place))
                         : std::span<const std::int32_t>();
    };
    for (std::int64_t i = 0; i + 1 < part; ++i) {
      // Only the last part may be shorter.
      std::vector<LanguageState::Reading> readings;
      for (std::int64_t s = 0; s < together; ++s) {
        if (rest(s, i).size() >= 2)
          readings.push_back({s, rest(s, i).first(1)});
      }
      if (readings.empty()) break;
      state.read(readings);
      const auto logits = state.logits();
      for (std::size_t r = 0; r < readings.size(); ++r) {
        const float* const row = logits.at(static_cast<std::int64_t>(r));
        const std::int64_t vocab = logits.extent(1);
        const std::int32_t next = rest(readings[r].sequence, i)[1];
        require(next >= 0 && next < vocab, kWhere, "tokens must be from 0 to ",
                vocab - 1, "; got ", next);
        const double most = *std::max_element(row, row + vocab);
        double weights = 0;
        for (std::int64_t v = 0; v < vocab; ++v)
          weights += std::exp(row[v] - most);
        sum += most + std::log(weights) - row[next];
        ++count;
      }
    }
  }
  return std::exp(sum / static_cast<double>(count));
}

}  // namespace regard::tasks
