// SPDX-License-Identifier: Apache-2.0
#include "cli/encoder_flags.h"

#include <fmt/format.h>

#include "cli/checks.h"
#include "cli/usage_error.h"

namespace regard::cli {

void add_text_flags(App& app, TextFlags& f) {
  const char* group = "Text";
  app.add_option("--pieces", f.pieces,
                 "words: words and single Chinese characters; unigram or bpe: "
                 "SentencePiece learns subwords; bytes")
      ->check(member_of({"words", "unigram", "bpe", "bytes"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--vocab", f.vocab, "Vocabulary size, at most")
      ->check(whole_between(10, 1000000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--min-count", f.min_count,
                 "Words with fewer occurrences are unknown")
      ->check(whole_between(1, 1000000))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--keep-case", f.keep_case, "Keep upper case")->group(group);
  app.add_option("--coverage", f.coverage,
                 "Share of the characters in the vocabulary")
      ->check(real_between(0.98, 1))
      ->capture_default_str()
      ->group(group);
}

void add_layer_flags(App& app, EncoderFlags& f) {
  const char* group = "Model";
  const auto size = [&](const char* name, std::int64_t& value,
                        const char* what) {
    app.add_option(name, value, what)
        ->check(whole_between(1, 65536))
        ->capture_default_str()
        ->group(group);
  };
  const auto share = [&](const char* name, double& value, const char* what) {
    app.add_option(name, value, what)
        ->check(real_between(0, 0.95))
        ->capture_default_str()
        ->group(group);
  };
  size("--layers", f.layers, "Layers of the encoder");
  size("--dim", f.dim, "Width of the model");
  size("--heads", f.heads, "Attention heads");
  size("--ffn", f.ffn, "Width of the feed-forward blocks");
  app.add_option("--activation", f.activation,
                 "Activation of the feed-forward blocks")
      ->check(member_of({"relu", "gelu", "swiglu"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--norm-last", f.norm_last,
               "Norms after the sublayers (post-norm), not before them")
      ->group(group);
  app.add_option("--positions", f.positions, "Position encoding")
      ->check(member_of({"sinusoidal", "learned", "rotary", "none"}))
      ->capture_default_str()
      ->group(group);
  share("--dropout", f.dropout, "Dropout of embeddings and sublayers");
  share("--attention-dropout", f.attention_dropout,
        "Dropout of attention weights");
  share("--activation-dropout", f.activation_dropout,
        "Dropout inside the feed-forward blocks");
}

void add_encoder_flags(App& app, EncoderFlags& f) {
  const char* group = "Model";
  add_layer_flags(app, f);
  app.add_option("--pooling", f.pooling,
                 "How the vectors of the tokens are pooled")
      ->check(member_of({"first", "mean", "attention"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-length", f.max_length,
                 "Maximum number of tokens of a text")
      ->check(whole_between(2, 100000))
      ->capture_default_str()
      ->group(group);
}

void check(const TextFlags& f, const TextFlags& unset) {
  const bool words = f.pieces == "words";
  const bool learnt = f.pieces == "unigram" || f.pieces == "bpe";
  if (!words && (f.min_count != unset.min_count || f.keep_case)) {
    throw UsageError("--min-count and --keep-case go with --pieces words");
  }
  if (!learnt && f.coverage != unset.coverage) {
    throw UsageError("--coverage goes with --pieces unigram and bpe");
  }
  if (!words && !learnt && f.vocab != unset.vocab) {
    throw UsageError("--vocab does not go with --pieces bytes");
  }
}

std::unique_ptr<text::Tokenizer> make_tokenizer(
    const TextFlags& f, std::span<const std::string> texts) {
  if (f.pieces == "bytes") return text::make_byte_tokenizer();
  if (f.pieces == "words") {
    text::RunningWordOptions options;
    options.size = f.vocab;
    options.min_count = f.min_count;
    options.lowercase = !f.keep_case;
    return text::make_running_word_tokenizer(texts, options);
  }
  text::SentencePieceOptions options;
  options.model =
      f.pieces == "bpe" ? text::PieceModel::kBpe : text::PieceModel::kUnigram;
  options.size = f.vocab;
  options.coverage = f.coverage;
  return text::train_sentencepiece(texts, options);
}

void add_settings(const TextFlags& f,
                  std::map<std::string, std::string>& settings) {
  settings["--pieces"] = f.pieces;
  if (f.pieces == "bytes") return;
  settings["--vocab"] = std::to_string(f.vocab);
  if (f.pieces == "words") {
    settings["--min-count"] = std::to_string(f.min_count);
    settings["--keep-case"] = f.keep_case ? "yes" : "no";
  } else {
    settings["--coverage"] = fmt::format("{}", f.coverage);
  }
}

nn::EncoderConfig encoder_config(const EncoderFlags& f, std::int64_t vocab) {
  if (f.dim % f.heads != 0) {
    throw UsageError(fmt::format(
        "--heads must divide --dim; they are {} and {}", f.heads, f.dim));
  }
  if (f.positions == "rotary" && f.dim / f.heads % 2 != 0) {
    throw UsageError(
        fmt::format("rotary positions need an even --dim / --heads; it is {}",
                    f.dim / f.heads));
  }
  nn::EncoderConfig c;
  c.vocab = vocab;
  c.layers = f.layers;
  c.model_dim = f.dim;
  c.heads = f.heads;
  c.feed_forward_dim = f.ffn;
  c.activation = f.activation == "relu"     ? nn::Activation::kRelu
                 : f.activation == "swiglu" ? nn::Activation::kSwiglu
                                            : nn::Activation::kGelu;
  c.norm_first = !f.norm_last;
  c.positions = f.positions == "learned"  ? nn::Positions::kLearned
                : f.positions == "rotary" ? nn::Positions::kRotary
                : f.positions == "none"   ? nn::Positions::kNone
                                          : nn::Positions::kSinusoidal;
  c.pooling = f.pooling == "first"       ? nn::Pooling::kFirst
              : f.pooling == "attention" ? nn::Pooling::kAttention
                                         : nn::Pooling::kMean;
  c.max_length = f.max_length;
  c.dropout = static_cast<float>(f.dropout);
  c.attention_dropout = static_cast<float>(f.attention_dropout);
  c.activation_dropout = static_cast<float>(f.activation_dropout);
  return c;
}

}  // namespace regard::cli
