// SPDX-License-Identifier: Apache-2.0
// The models that come with the program, with weights of fewer bits.
#include "tasks/weight_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <span>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/tasks/captioner.h"
#include "regard/tasks/classifier.h"
#include "regard/tasks/quantize.h"
#include "regard/tasks/recommender.h"
#include "regard/tasks/samples.h"
#include "regard/tasks/video_classifier.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using ops::WeightStorage;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const fs::path kModels = fs::path(REGARD_SOURCE_DIR) / "models";

template <typename Model>
auto loads(const fs::path& folder) {
  return [=](WeightStorage storage) { return Model::load(folder, storage); };
}

// The files of a sample, by name.
std::map<std::string, std::string> sample(const std::string& task) {
  std::map<std::string, std::string> files;
  for (SampleFile& file : make_sample(task, 1)) {
    files[file.name] = std::move(file.text);
  }
  return files;
}

std::vector<Said> classified(const Classifier& model,
                             std::span<const std::string> texts,
                             Threads threads) {
  std::vector<Said> said;
  for (const auto& found : model.classify(texts, threads)) {
    said.push_back({model.config().labels.at(
                        static_cast<std::size_t>(found.front().label)),
                    found.front().probability});
  }
  return said;
}

class WeightTypes : public ::testing::Test {
 protected:
  LabelledTexts reviews() const {
    write_text(folder_ / "test.tsv", sample("classify").at("test.tsv"));
    return read_labelled_texts(folder_ / "test.tsv");
  }

  TemporaryFolder folder_;
};

TEST_F(WeightTypes, OfAClassifierAgree) {
  const std::vector<std::string> texts = reviews().texts;
  expect_weight_types_agree(
      loads<Classifier>(kModels / "reviews"),
      [&](const Classifier& model, std::size_t first, std::size_t count,
          Threads threads) {
        return classified(model, std::span(texts).subspan(first, count),
                          threads);
      },
      texts.size(), 0.03);
}

TEST_F(WeightTypes, OfAnAnswererAgree) {
  write_text(folder_ / "test.tsv", sample("answer").at("test.tsv"));
  const std::vector<Story> stories = read_stories(folder_ / "test.tsv");
  expect_weight_types_agree(
      loads<Answerer>(kModels / "stories"),
      [&](const Answerer& model, std::size_t first, std::size_t count,
          Threads threads) {
        std::vector<Said> said;
        for (const Answer& answer :
             model.answer(std::span(stories).subspan(first, count), threads)) {
          said.push_back({answer.text, answer.probability});
        }
        return said;
      },
      stories.size(), 0.06);
}

TEST_F(WeightTypes, OfACaptionerAgree) {
  const auto files = sample("caption");
  std::vector<fs::path> pictures;
  for (int i = 3200; i < 3240; ++i) {
    const std::string name = std::to_string(i) + ".png";
    pictures.push_back(folder_ / name);
    write_text(pictures.back(), files.at("pictures/" + name));
  }
  expect_weight_types_agree(
      loads<Captioner>(kModels / "shapes"),
      [&](const Captioner& model, std::size_t first, std::size_t count,
          Threads threads) {
        std::vector<Said> said;
        for (const Caption& caption :
             model.caption(std::span(pictures).subspan(first, count),
                           {.threads = threads})) {
          said.push_back({caption.text, caption.score});
        }
        return said;
      },
      pictures.size(), 0.01);
}

TEST_F(WeightTypes, OfARecommenderAgree) {
  write_text(folder_ / "log.tsv", sample("recommend").at("log.tsv"));
  const Interactions log = read_interactions(folder_ / "log.tsv");
  const Recommender names = Recommender::load(kModels / "series");
  std::vector<std::vector<std::int32_t>> histories;
  for (std::size_t user = 0; user < 200; ++user) {
    auto& history = histories.emplace_back();
    for (const std::int32_t item : log.histories[user]) {
      history.push_back(
          names.item(log.items.at(static_cast<std::size_t>(item))));
    }
  }
  expect_weight_types_agree(
      loads<Recommender>(kModels / "series"),
      [&](const Recommender& model, std::size_t first, std::size_t count,
          Threads threads) {
        const std::vector<ItemList> some(
            histories.begin() + std::ptrdiff_t(first),
            histories.begin() + std::ptrdiff_t(first + count));
        std::vector<Said> said(count);
        model.score(
            some,
            [&](std::size_t i, std::span<const float> scores) {
              const auto best = best_items(scores, some[i], 1).at(0);
              said[i] = {model.items().at(static_cast<std::size_t>(best.item)),
                         best.score};
            },
            threads);
        return said;
      },
      histories.size(), 0.06, 2);
}

TEST_F(WeightTypes, OfAVideoClassifierAgree) {
  fs::create_directories(folder_ / "clips");
  std::vector<std::string> names;
  for (const auto& [name, bytes] : sample("video")) {
    if (!name.starts_with("clips/test-")) continue;
    names.push_back(name);
    write_text(folder_ / name, bytes);
  }
  const std::vector<Tensor> clips = load_clips(names, folder_.path(), {});
  ASSERT_EQ(clips.size(), 100u);
  expect_weight_types_agree(
      loads<VideoClassifier>(kModels / "clips"),
      [&](const VideoClassifier& model, std::size_t first, std::size_t count,
          Threads threads) {
        std::vector<Said> said;
        for (const auto& found : model.classify(
                 std::span(clips).subspan(first, count), 1, threads)) {
          said.push_back({model.config().labels.at(
                              static_cast<std::size_t>(found.front().label)),
                          found.front().probability});
        }
        return said;
      },
      clips.size(), 0.01);
}

// Even of these tiny models, whose rows are shorter than a group of int8.
TEST_F(WeightTypes, TellTheMemory) {
  const auto bytes_of = [](const auto& load) {
    return std::vector{load(WeightStorage::kFloat32).weight_bytes(),
                       load(WeightStorage::kBFloat16).weight_bytes(),
                       load(WeightStorage::kInt8).weight_bytes(),
                       load(WeightStorage::kInt4).weight_bytes()};
  };
  for (const std::vector<std::size_t>& bytes :
       {bytes_of(loads<Classifier>(kModels / "reviews")),
        bytes_of(loads<Answerer>(kModels / "stories")),
        bytes_of(loads<Captioner>(kModels / "shapes")),
        bytes_of(loads<Recommender>(kModels / "series")),
        bytes_of(loads<VideoClassifier>(kModels / "clips"))}) {
    EXPECT_LT(bytes[1], bytes[0]);
    EXPECT_LT(bytes[2], bytes[0]);
    EXPECT_LT(bytes[3], bytes[2]);
  }
  // Its matrices are [192, 64], [64, 64], [128, 64] and [64, 128], twice, and
  // [3, 64]; tables, norms and biases are float32 in both.
  const auto reviews = bytes_of(loads<Classifier>(kModels / "reviews"));
  constexpr std::size_t kMatrices = 2 * (4 * 64 * 64 + 2 * 128 * 64);
  const std::size_t saved = kMatrices * 3 - kMatrices / 64 * 4;
  EXPECT_NEAR(static_cast<double>(reviews[0] - reviews[2]), saved, 8192);
}

// A quantised folder as it is stored, and the old one rounded where it is
// loaded, are one model.
TEST_F(WeightTypes, AsStoredAreThoseThatTheOldFolderGets) {
  const std::vector<std::string> texts = reviews().texts;
  const auto said = [&](const fs::path& folder, WeightStorage storage) {
    std::vector<double> sure;
    const Classifier model = Classifier::load(folder, storage);
    for (const Said& one : classified(model, texts, {})) {
      sure.push_back(one.sure);
    }
    return sure;
  };
  for (const WeightStorage to : {WeightStorage::kInt8, WeightStorage::kInt4}) {
    const fs::path smaller =
        folder_ / (to == WeightStorage::kInt8 ? "int8" : "int4");
    quantize_trained(kModels / "reviews", smaller, {.to = to});
    EXPECT_EQ(stored_weights(smaller), to);
    EXPECT_EQ(said(smaller, WeightStorage::kAsStored),
              said(kModels / "reviews", to));
    EXPECT_NE(said(smaller, WeightStorage::kFloat32),
              said(smaller, WeightStorage::kAsStored));
  }
}

TEST_F(WeightTypes, AsStoredNeedAQuantisedFolder) {
  EXPECT_EQ(stored_weights(kModels / "reviews"), WeightStorage::kFloat32);
  EXPECT_EQ(stored_weights(folder_.path()), WeightStorage::kFloat32);
  const auto refused = [](auto load, const std::string& where) {
    EXPECT_THAT(
        [&] { load(WeightStorage::kAsStored); },
        ThrowsMessage<InvalidArgument>(HasSubstr(
            where +
            ": as-stored is for folders that regard quantize wrote; the "
            "weights of this model can be float32, bfloat16, int8 or int4")));
  };
  refused(loads<Classifier>(kModels / "reviews"), "Classifier::load");
  refused(loads<Answerer>(kModels / "stories"), "Answerer::load");
  refused(loads<Captioner>(kModels / "shapes"), "Captioner::load");
  refused(loads<Recommender>(kModels / "series"), "Recommender::load");
  refused(loads<VideoClassifier>(kModels / "clips"), "VideoClassifier::load");
}

}  // namespace
}  // namespace regard::tasks
