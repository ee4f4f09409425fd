// SPDX-License-Identifier: Apache-2.0
// regard train: the options of everything that can be trained.
#include <limits>
#include <memory>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/train_translate.h"

namespace regard::cli {
namespace {

constexpr const char* kTrainFooter =
    R"(Example:
  regard train translate --src train.en --tgt train.de --out en-de
      `regard train translate --help` tells the rest)";

constexpr const char* kFooter =
    R"(Line n of one file is the translation of line n of the other, in UTF-8. Pairs
with a blank side, and those with more than --max-length pieces, are left out
and counted. Without files to validate with, a share of the pairs is held out,
chosen by the sentences themselves, so that it is the same in every run.

The folder becomes a model for `regard translate`: config.json,
model.safetensors, the tokenizer, and a card, README.md. Its folder `training`
holds what --resume needs. Ctrl-C saves and ends, with the model as it is, once
there is a milestone. The same command gives the same bits, for any number of
threads, and whether it was stopped or not.

Examples:
  regard train translate --src train.en --tgt train.de --out en-de
  regard train translate --tsv pairs.tsv --src-lang en --tgt-lang zh \
      --both-directions --out en-zh
  regard train translate --src train.en --tgt train.de --out en-de --resume
      goes on where it was stopped)";

void add_data(App& app, TrainTranslateFlags& f) {
  const char* group = "Data";
  app.add_option("--src", f.src, "Sentences")->type_name("FILE")->group(group);
  app.add_option("--tgt", f.tgt, "Their translations")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tsv", f.tsv, "Both in one file, a tab between them")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-src", f.valid_src, "Sentences to validate with")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-tgt", f.valid_tgt, "Their translations")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-tsv", f.valid_tsv, "Both in one file")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-share", f.valid_share,
                 "Share to hold out where no files are given")
      ->capture_default_str()
      ->check(real_between(0, 0.9))
      ->group(group);
  app.add_option("--out", f.out, "Folder of the model")
      ->type_name("FOLDER")
      ->required()
      ->group(group);
  app.add_flag("--resume", f.resume,
               "Go on with the training in the folder, if there is one")
      ->group(group);
}

void add_text(App& app, TrainTranslateFlags& f) {
  const char* group = "Text";
  app.add_option("--pieces", f.pieces,
                 "unigram or bpe: pieces that SentencePiece learns; words: the "
                 "text is cut already (@@ is joined again)")
      ->check(member_of({"unigram", "bpe", "words"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--vocab", f.vocab, "Pieces, for both languages together")
      ->check(whole_between(10, 1000000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--coverage", f.coverage,
                 "Share of the characters that have a piece")
      ->check(real_between(0.98, 1))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-length", f.max_length,
                 "Longer pairs, in pieces, are left out")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--src-lang", f.src_lang, "Name of the source language")
      ->capture_default_str()
      ->group(group);
  app.add_option("--tgt-lang", f.tgt_lang, "Name of the target language")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--both-directions", f.both_directions,
               "One model that translates either way")
      ->group(group);
}

void add_model(App& app, TrainTranslateFlags& f) {
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
  size("--encoder-layers", f.encoder_layers, "Layers of the encoder");
  size("--decoder-layers", f.decoder_layers, "Layers of the decoder");
  size("--dim", f.dim, "Width of the model");
  size("--heads", f.heads, "Attention heads");
  size("--ffn", f.ffn, "Width of the feed-forward blocks");
  app.add_option("--activation", f.activation, "Of the feed-forward blocks")
      ->check(member_of({"relu", "gelu", "swiglu"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--norm-first", f.norm_first,
               "Norms before the blocks (pre-norm), not after them")
      ->group(group);
  share("--dropout", f.dropout, "Of embeddings and blocks");
  share("--attention-dropout", f.attention_dropout, "Of attention weights");
  share("--activation-dropout", f.activation_dropout,
        "Inside the feed-forward blocks");
  share("--smoothing", f.smoothing, "Label smoothing");
}

void add_learning(App& app, TrainTranslateFlags& f) {
  const char* group = "Training";
  const auto count = [&](const char* name, std::int64_t& value, int least,
                         const char* what) {
    app.add_option(name, value, what)
        ->check(whole_between(least, 1000000000))
        ->capture_default_str()
        ->group(group);
  };
  const auto real = [&](const char* name, double& value, const char* what) {
    app.add_option(name, value, what)
        ->check(real_between(0, std::numeric_limits<double>::infinity()))
        ->capture_default_str()
        ->group(group);
  };
  const auto beta = [&](const char* name, double& value) {
    app.add_option(name, value, "Of Adam")
        ->check(real_below(0, 1))
        ->capture_default_str()
        ->group(group);
  };
  count("--updates", f.updates, 0, "At most; 0: no limit");
  count("--epochs", f.epochs, 0, "At most; 0: no limit");
  count("--batch-tokens", f.batch_tokens, 1,
        "Tokens of a batch, by the longer side");
  count("--accumulate", f.accumulate, 1, "Batches of an update");
  app.add_option("--schedule", f.schedule, "Of the learning rate")
      ->check(member_of({"inverse-sqrt", "cosine", "constant"}))
      ->capture_default_str()
      ->group(group);
  real("--lr", f.rate, "Highest learning rate");
  count("--warmup", f.warmup, 0, "Updates until it is reached");
  beta("--beta1", f.beta1);
  beta("--beta2", f.beta2);
  real("--weight-decay", f.weight_decay,
       "Beside the gradient, as AdamW has it");
  real("--clip", f.clip, "Largest norm of a gradient; 0: any");
  count("--validate-every", f.validate_every, 0,
        "Updates between milestones; 0: an epoch");
  count("--patience", f.patience, 0,
        "Milestones without a better loss before the end; 0: any number");
  count("--average", f.average, 1, "Milestones whose mean is the model");
  real("--checkpoint-every", f.checkpoint_every,
       "Seconds between checkpoints; 0: at each update");
  app.add_option("--seed", f.seed, "Of all that is random")
      ->capture_default_str()
      ->group(group);
  app.add_option("--threads", f.threads, "0: one for each core")
      ->check(whole_between(0, 1024))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--float16", f.float16, "Store the model in half the space")
      ->group(group);
}

}  // namespace

Command add_train(App& program) {
  App* app = program.add_subcommand("train", "Train a model from files");
  app->require_subcommand();
  app->footer(kTrainFooter);
  const auto flags = std::make_shared<TrainTranslateFlags>();
  App* translate = app->add_subcommand(
      "translate", "A translator, from sentences and their translations");
  translate->footer(kFooter);
  add_data(*translate, *flags);
  add_text(*translate, *flags);
  add_model(*translate, *flags);
  add_learning(*translate, *flags);
  return {app, [flags] { run_train_translate(*flags); }};
}

}  // namespace regard::cli
