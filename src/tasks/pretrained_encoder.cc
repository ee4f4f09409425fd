// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/pretrained_encoder.h"

#include "io/quote.h"
#include "regard/core/error.h"
#include "tasks/encoder_config.h"
#include "tasks/encoder_weights.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "load_pretrained_encoder";

nn::Pooling pooling_of(const TextEncoderConfig& c, const std::string& name) {
  if (c.pooling == std::vector{Pooling::kMean}) return nn::Pooling::kMean;
  if (c.pooling == std::vector{Pooling::kCls}) return nn::Pooling::kFirst;
  std::string found;
  for (const Pooling pooling : c.pooling) {
    found.append(found.empty() ? "" : " and ").append(pooling_name(pooling));
  }
  throw_parse_error(kWhere, name,
                    " must be pooled by mean or cls to be trained; it is by ",
                    found);
}

}  // namespace

PretrainedEncoder load_pretrained_encoder(const std::filesystem::path& folder,
                                          std::int64_t max_length) {
  EncoderFolder found = read_encoder_folder(folder);
  const EncoderSettings& s = found.settings;
  TextEncoderConfig& from = found.settings.config;
  const std::string name = io::in_quotes(folder.string());
  if (s.family == EncoderFamily::kMpnet || s.family == EncoderFamily::kAlbert) {
    throw_parse_error(kWhere, name,
                      " must be of the family bert, roberta or distilbert to "
                      "be trained; it is ",
                      from.family);
  }
  if (from.lower_case) {
    throw_parse_error(kWhere, name,
                      " makes small letters of texts before the tokenizer "
                      "(do_lower_case); this cannot be trained yet");
  }
  const std::int64_t places = s.positions - s.first_position;
  require(max_length >= 0 && max_length <= places, kWhere,
          "max_length must be from 1 to the ", places, " places of ", name,
          "; it is ", max_length);
  if (max_length > 0) from.max_length = max_length;

  PretrainedEncoder out;
  nn::EncoderConfig& c = out.config;
  c.vocab = from.vocab;
  c.model_dim = from.model_dim;
  c.heads = from.heads;
  c.layers = from.layers;
  c.feed_forward_dim = from.feed_forward_dim;
  c.activation = s.activation;
  c.norm_epsilon = s.norm_epsilon;
  c.norm_first = false;
  c.positions = nn::Positions::kLearned;
  c.max_length = from.max_length;
  c.pooling = pooling_of(from, name);
  c.embedding_scale = 1;
  c.token_type = s.types > 0;
  c.embedding_norm = true;
  out.tokenizer = load_encoder_tokenizer(found);
  out.weights = encoder_parameters(found, c.max_length);
  return out;
}

}  // namespace regard::tasks
