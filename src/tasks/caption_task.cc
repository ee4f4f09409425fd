// SPDX-License-Identifier: Apache-2.0
// How a captioner learns.
#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>
#include <utility>

#include "regard/autograd/operations.h"
#include "regard/core/error.h"
#include "regard/tasks/translator.h"
#include "regard/text/table.h"
#include "tasks/captioner_parts.h"

namespace regard::tasks {
namespace {

nn::Linear projection(const CaptionerConfig& c) {
  return {"picture", c.pictures.width(), c.layers.model_dim};
}
nn::Embedding places(const CaptionerConfig& c) {
  return {"places", c.pictures.places(), c.layers.model_dim};
}

std::vector<std::int64_t> lengths(const CaptionData& data) {
  std::vector<std::int64_t> out;
  for (const auto& captions : data.captions) {
    std::int64_t sum = 0;
    for (const auto& caption : captions) sum += std::ssize(caption) + 1;
    out.push_back(sum);
  }
  return out;
}

void check(const CaptionData& data, const CaptionerConfig& config) {
  const auto size = static_cast<std::size_t>(config.pictures.places() *
                                             config.pictures.width());
  for (std::int64_t i = 0; i < data.size(); ++i) {
    require(data.features.of(i).size() == size, "make_caption_task",
            "a picture must have ", size, " features; picture ", i, " has ",
            data.features.of(i).size());
  }
}

}  // namespace

CaptionTable read_captions(const std::filesystem::path& path) {
  const std::vector<std::string> columns = {"picture", "caption"};
  text::Table table = text::read_table(path, columns);
  CaptionTable out;
  std::unordered_map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < table.columns[0].size(); ++i) {
    std::string& picture = table.columns[0][i];
    const auto [found, is_new] = numbers.emplace(picture, out.pictures.size());
    if (is_new) {
      out.pictures.push_back(std::move(picture));
      out.captions.emplace_back();
    }
    out.captions[found->second].push_back(std::move(table.columns[1][i]));
  }
  return out;
}

CaptionData encode_captions(const CaptionTable& table,
                            const text::Tokenizer& tokenizer,
                            const CaptionerConfig& config,
                            FeatureSet features) {
  CaptionData data{{}, std::move(features)};
  const auto most = static_cast<std::size_t>(config.layers.max_length - 1);
  for (const auto& captions : table.captions) {
    auto& pieces = data.captions.emplace_back();
    for (const std::string& caption : captions) {
      pieces.push_back(tokenizer.encode(caption));
      if (pieces.back().size() > most) pieces.back().resize(most);
    }
  }
  return data;
}

nn::TransformerConfig transformer_of(const CaptionerConfig& config) {
  nn::TransformerConfig t = with_decoder(config.layers, config.decoder_layers);
  t.source_vocab = 0;
  t.shared_embeddings = false;
  t.label_smoothing = config.label_smoothing;
  return t;
}

void PictureEmbedding::declare(nn::ParameterSpecs& specs) const {
  projection(config).declare(specs);
  places(config).declare(specs);
}

nn::Variable PictureEmbedding::operator()(nn::Pass& pass,
                                          const nn::Variable& features) const {
  std::vector<std::int32_t> place(static_cast<std::size_t>(features.rows()));
  for (std::size_t i = 0; i < place.size(); ++i) {
    place[i] = static_cast<std::int32_t>(
        i % static_cast<std::size_t>(config.pictures.places()));
  }
  // As large as what is seen, or the model would hardly tell places apart.
  const auto scale = static_cast<float>(
      std::sqrt(static_cast<double>(config.layers.model_dim)));
  const nn::Variable seen = projection(config)(pass, features);
  return autograd::add(pass.tape(),
                       places(config)(pass, place, {.scale = scale}), seen,
                       pass.dropout(config.layers.dropout));
}

nn::ParameterSpecs captioner_specs(const CaptionerConfig& config) {
  nn::ParameterSpecs specs = nn::transformer_parameters(transformer_of(config));
  PictureEmbedding{config}.declare(specs);
  return specs;
}

ExampleTask make_caption_task(const CaptionerConfig& config,
                              const CaptionData& training,
                              const CaptionData& held_out, std::uint64_t seed,
                              Threads threads) {
  check(training, config);
  check(held_out, config);
  const nn::TransformerConfig model = transformer_of(config);
  ExampleTaskParts parts;
  parts.parameters = captioner_specs(config);
  parts.lengths = lengths(training);
  parts.held_out_lengths = lengths(held_out);
  const auto tables = std::make_shared<const nn::PositionTables>(
      model, config.layers.max_length);
  parts.loss = [=, &training, &held_out](nn::Pass& pass, Part part,
                                         std::span<const std::int64_t> examples,
                                         std::uint64_t) -> nn::LossSum {
    const CaptionData& data = part == Part::kTraining ? training : held_out;
    const std::int64_t rows = config.pictures.places();
    nn::Variable features = pass.tape().result(std::ssize(examples) * rows,
                                               config.pictures.width(), false);
    float* next = features.mutable_data();
    nn::PackedTokens target;
    std::vector<std::int32_t> targets;
    // Where each picture begins, and which words look at it.
    std::vector<std::int64_t> pictures{0};
    std::vector<std::int64_t> words{0};
    for (const std::int64_t example : examples) {
      const auto values = data.features.of(example);
      next = std::transform(values.begin(), values.end(), next,
                            [](Float16 v) { return static_cast<float>(v); });
      for (const auto& caption :
           data.captions[static_cast<std::size_t>(example)]) {
        target.tokens.push_back(text::kBegin);
        target.tokens.insert(target.tokens.end(), caption.begin(),
                             caption.end());
        target.offsets.push_back(target.size());
        targets.insert(targets.end(), caption.begin(), caption.end());
        targets.push_back(text::kEnd);
      }
      pictures.push_back(pictures.back() + rows);
      words.push_back(target.size());
    }
    const nn::Variable memory =
        nn::encode_rows(pass, model, *tables,
                        PictureEmbedding{config}(pass, features), pictures);
    const nn::Variable x = nn::decode(pass, model, *tables, target, memory,
                                      {.offsets = pictures, .queries = words});
    const autograd::CrossEntropySum sum = autograd::cross_entropy(
        pass.tape(), x, pass.parameter("target_embedding.weight"), {}, targets,
        model.label_smoothing);
    return {sum.loss, sum.likelihood, std::ssize(targets)};
  };
  return {std::move(parts), seed, threads};
}

}  // namespace regard::tasks
