// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/quantize.h"
#include "regard/tasks/text_encoder.h"
#include "support/encoder_folder.h"
#include "support/refusal.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using ops::WeightStorage;
using regard::testing::bert_weights;
using regard::testing::TemporaryFolder;
using regard::testing::write_encoder_folder;
using regard::testing::write_text;
using test::refusal;
using ::testing::HasSubstr;

const std::string kKey = "encoder.layer.1.attention.self.key.weight";
const std::string kDown = "encoder.layer.0.output.dense.weight";

std::vector<float> vectors(const fs::path& folder, WeightStorage weights) {
  const std::vector<std::string> texts = {"the cat sat on the mat.", "dogs",
                                          "a dog"};
  const Tensor found = TextEncoder::load(folder, {}, weights).encode(texts);
  const auto values = found.values<float>();
  return {values.begin(), values.end()};
}

class QuantizeEncoder : public ::testing::Test {
 protected:
  fs::path made(WeightStorage to, const testing::BertSizes& sizes) {
    write_encoder_folder(from_, sizes);
    fs::remove_all(to_);
    report_ = quantize_encoder(from_, to_, {.to = to});
    return to_;
  }

  TemporaryFolder folder_;
  fs::path from_ = folder_.path() / "from", to_ = folder_.path() / "to";
  std::vector<QuantizedTensor> report_;
};

TEST_F(QuantizeEncoder, AsStoredItGivesTheBitsOfTheOldFolderReadSo) {
  for (const auto to : {WeightStorage::kInt8, WeightStorage::kInt4}) {
    made(to, {.width = 64, .inner = 128});
    EXPECT_EQ(vectors(to_, WeightStorage::kAsStored), vectors(from_, to));
    // The values of the codes, in floats.
    const auto exact = vectors(to_, WeightStorage::kFloat32);
    const auto rounded = vectors(to_, WeightStorage::kAsStored);
    double change = 0, power = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      change += std::pow(rounded[i] - exact[i], 2);
      power += std::pow(exact[i], 2);
    }
    EXPECT_LE(std::sqrt(change / power),
              to == WeightStorage::kInt8 ? 1e-3 : 3e-2);
  }
}

TEST_F(QuantizeEncoder, RoundsMatricesAndLeavesAllElse) {
  const testing::BertSizes sizes{.width = 64, .inner = 96};
  write_encoder_folder(from_, sizes);
  fs::create_directories(from_ / "1_Pooling");
  write_text(from_ / "1_Pooling" / "config.json", "{}");
  write_text(from_ / "pytorch_model.bin", "weights of others");
  made(WeightStorage::kInt8, sizes);
  EXPECT_TRUE(fs::exists(to_ / "vocab.txt"));
  EXPECT_TRUE(fs::exists(to_ / "1_Pooling" / "config.json"));
  EXPECT_FALSE(fs::exists(to_ / "pytorch_model.bin"));
  const auto old = SafetensorsFile::open(from_ / "model.safetensors");
  const auto now = SafetensorsFile::open(to_ / "model.safetensors");
  EXPECT_EQ(now.dtype(kKey), DType::kInt8);
  EXPECT_EQ(now.shape(kKey + ".scales"), (Shape{64, 1}));
  // Rows of 96 are no multiple of 64.
  for (const std::string& name :
       {kDown, std::string("embeddings.word_embeddings.weight"),
        std::string("encoder.layer.0.output.LayerNorm.weight")}) {
    EXPECT_EQ(now.dtype(name), DType::kFloat32);
    EXPECT_TRUE(std::ranges::equal(now.data(name), old.data(name)));
  }
  const Tensor weights = old.tensor(kKey), codes = now.tensor(kKey);
  const Tensor scales = now.tensor(kKey + ".scales");
  for (std::size_t i = 0; i < weights.values<float>().size(); ++i) {
    const float scale = scales.values<float>()[i / 64];
    EXPECT_NEAR(weights.values<float>()[i],
                scale * codes.values<std::int8_t>()[i], 0.501 * scale);
  }
  for (const QuantizedTensor& one : report_) {
    EXPECT_EQ(one.bytes_before, std::ssize(old.data(one.name)));
    if (one.name != kKey) continue;
    EXPECT_EQ(one.from, "float32");
    EXPECT_EQ(one.to, "int8");
    EXPECT_EQ(one.bytes_after, 64 * 64 + 4 * 64);
    EXPECT_NEAR(one.error / one.size, 0.006, 0.002);
  }
}

TEST_F(QuantizeEncoder, SaysWhatItRefuses) {
  write_encoder_folder(from_, {.width = 64, .inner = 128});
  EXPECT_THAT(refusal([&] {
                quantize_encoder(from_, to_, {.to = WeightStorage::kFloat32});
              }),
              HasSubstr("weights become int8 or int4"));
  EXPECT_THAT(refusal([&] { quantize_encoder(from_, from_); }),
              HasSubstr("the new folder must not be there yet; '"));
  StateDict state = bert_weights({.width = 64, .inner = 128});
  state[kKey].values<float>()[70] = NAN;
  save_safetensors(from_ / "model.safetensors", state);
  EXPECT_THAT(refusal([&] { quantize_encoder(from_, to_); }),
              HasSubstr("some of '" + kKey + "' are not"));
  EXPECT_FALSE(fs::exists(to_));
}

TEST_F(QuantizeEncoder, LeavesNothingWhereAFileCannotBeCopied) {
  write_encoder_folder(from_, {.width = 64, .inner = 128});
  fs::create_symlink("nowhere", from_ / "more.json");
  const auto run = [&] { quantize_encoder(from_, to_ / ""); };
  EXPECT_THROW(run(), IoError);
  // What stands beside it is what was there before.
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path(), from_);
  }
  fs::remove(from_ / "more.json");
  run();
  EXPECT_TRUE(fs::exists(to_ / "model.safetensors"));
}

TEST_F(QuantizeEncoder, CodesThatDoNotFitAreRefused) {
  for (const auto to : {WeightStorage::kInt8, WeightStorage::kInt4}) {
    made(to, {.width = 64, .inner = 128});
    const StateDict good =
        SafetensorsFile::open(to_ / "model.safetensors").state_dict();
    const auto with = [&](const std::function<void(StateDict&)>& change) {
      StateDict state = good;
      change(state);
      save_safetensors(to_ / "model.safetensors", state);
      try {
        TextEncoder::load(to_, {}, WeightStorage::kAsStored);
      } catch (const ParseError& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    EXPECT_THAT(with([](StateDict& s) { s.erase(kKey + ".scales"); }),
                HasSubstr("the tensor '" + kKey + ".scales' is missing"));
    EXPECT_THAT(with([](StateDict& s) {
                  s[kKey + ".scales"] = Tensor({64, 3});
                }),
                HasSubstr("where a group has a multiple of 8 of the 64"));
    EXPECT_THAT(with([](StateDict& s) {
                  s[kKey + ".scales"] = Tensor(DType::kInt8, {64, 1});
                }),
                HasSubstr("it is int8 [64, 1]"));
    EXPECT_THAT(with([&](StateDict& s) {
                  s[kKey] = Tensor(s[kKey].dtype(), {64, 7});
                }),
                HasSubstr("the tensor '" + kKey + "' must be "));
    EXPECT_THAT(with([](StateDict& s) {
                  s[kKey] = Tensor(DType::kInt32, {64, 64});
                }),
                HasSubstr("must be float32, float16, bfloat16, int8 or uint8"));
    if (to == WeightStorage::kInt4) {
      EXPECT_THAT(with([](StateDict& s) { s.erase(kKey + ".minima"); }),
                  HasSubstr("the tensor '" + kKey + ".minima' is missing"));
    }
  }
}

}  // namespace
}  // namespace regard::tasks
