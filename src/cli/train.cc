// SPDX-License-Identifier: Apache-2.0
// regard train: the options of everything that can be trained.
#include <memory>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/train.h"
#include "cli/train_translate.h"

namespace regard::cli {
namespace {

constexpr const char* kTrainFooter =
    R"(Examples:
  regard train translate --src train.en --tgt train.de --out en-de
  regard train classify --train reviews.tsv --out reviews
  regard train answer --train stories.tsv --out stories
  regard train summarize --train dialogues.jsonl --out dialogues
  regard train recommend --interactions log.tsv --out shop
  regard train caption --pictures photos --captions captions.tsv --out photos-model
  regard train video --clips clips.tsv --out clips
      `regard train translate --help` tells the rest, as for every task)";

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
      goes on where it was stopped
  regard train translate --tsv more.tsv --begin-with en-zh --out en-zh-2
      learns from other pairs what a model does not know yet)";

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
  add_folder_flags(app, f.learning);
  app.add_option("--begin-with", f.begin_with,
                 "A model to train further: its languages, pieces, sizes and "
                 "weights")
      ->type_name("FOLDER")
      ->group(group);
}

void add_text(App& app, TrainTranslateFlags& f) {
  const char* group = "Text";
  app.add_option("--tokenizer", f.tokenizer,
                 "A folder whose pieces are taken, not learnt anew")
      ->type_name("FOLDER")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--pieces", f.pieces,
                 "unigram or bpe: pieces that SentencePiece learns; words: the "
                 "text is cut already (@@ is joined again)")
      ->check(member_of({"unigram", "bpe", "words"}))
      ->capture_default_str()
      ->excludes("--tokenizer")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--vocab", f.vocab, "Pieces, for both languages together")
      ->check(whole_between(10, 1000000))
      ->capture_default_str()
      ->excludes("--tokenizer")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--coverage", f.coverage,
                 "Share of the characters that have a piece")
      ->check(real_between(0.98, 1))
      ->capture_default_str()
      ->excludes("--tokenizer")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--max-length", f.max_length,
                 "Longer pairs, in pieces, are left out")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--src-lang", f.src_lang, "Name of the source language")
      ->capture_default_str()
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--tgt-lang", f.tgt_lang, "Name of the target language")
      ->capture_default_str()
      ->excludes("--begin-with")
      ->group(group);
  app.add_flag("--both-directions", f.both_directions,
               "One model that translates either way")
      ->excludes("--begin-with")
      ->group(group);
}

void add_model(App& app, TrainTranslateFlags& f) {
  const char* group = "Model";
  const auto size = [&](const char* name, std::int64_t& value,
                        const char* what) {
    app.add_option(name, value, what)
        ->check(whole_between(1, 65536))
        ->capture_default_str()
        ->excludes("--begin-with")
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
      ->excludes("--begin-with")
      ->group(group);
  app.add_flag("--norm-first", f.norm_first,
               "Norms before the blocks (pre-norm), not after them")
      ->excludes("--begin-with")
      ->group(group);
  share("--dropout", f.dropout, "Of embeddings and blocks");
  share("--attention-dropout", f.attention_dropout, "Of attention weights");
  share("--activation-dropout", f.activation_dropout,
        "Inside the feed-forward blocks");
  share("--smoothing", f.smoothing, "Label smoothing");
}

}  // namespace

Command add_train(App& program, Ranks& ranks) {
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
  add_learning_flags(*translate, flags->learning);
  const std::vector<Command> tasks = {
      {translate, [flags, &ranks] { run_train_translate(*flags, ranks); }},
      add_train_classify(*app, ranks),
      add_train_recommend(*app, ranks),
      add_train_answer(*app, ranks),
      add_train_summarize(*app, ranks),
      add_train_caption(*app, ranks),
      add_train_video(*app, ranks)};
  return {app,
          [tasks] {
            for (const Command& task : tasks) {
              if (task.app->parsed()) task.run();
            }
          },
          true};
}

}  // namespace regard::cli
