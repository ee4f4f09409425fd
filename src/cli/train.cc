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
      `regard train translate --help` lists the options, as for every task)";

constexpr const char* kFooter =
    R"(Line n of one file is the translation of line n of the other, in UTF-8. Pairs
with a blank side, and those with more than --max-length tokens, are left out
and counted. Without validation files, a share of the pairs is held out, chosen
by the sentences themselves, so that it is the same in every run.

The folder becomes a model for `regard translate`: config.json,
model.safetensors, the tokenizer, and a model card, README.md. Its folder
`training` holds what --resume needs. Ctrl-C saves and ends; once there is a
milestone, it also writes the model so far. The same command gives the same
bits, for any number of threads, also if it was stopped and resumed.

Examples:
  regard train translate --src train.en --tgt train.de --out en-de
  regard train translate --tsv pairs.tsv --src-lang en --tgt-lang zh \
      --both-directions --out en-zh
  regard train translate --src train.en --tgt train.de --out en-de --resume
      continues where it was stopped
  regard train translate --tsv more.tsv --begin-with en-zh --out en-zh-2
      continues training a model on other pairs)";

void add_data(App& app, TrainTranslateFlags& f) {
  const char* group = "Data";
  app.add_option("--src", f.src, "Sentences")->type_name("FILE")->group(group);
  app.add_option("--tgt", f.tgt, "Their translations")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tsv", f.tsv, "Both in one file, separated by a tab")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--back-tsv", f.back_tsv,
                 "More pairs, learnt from translation to sentence alone, such "
                 "as those whose sentence a machine wrote; with "
                 "--both-directions")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-src", f.valid_src, "Validation sentences")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-tgt", f.valid_tgt, "Their translations")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-tsv", f.valid_tsv, "Both in one file")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-share", f.valid_share,
                 "Share to hold out if no validation files are given")
      ->capture_default_str()
      ->check(real_between(0, 0.9))
      ->group(group);
  add_folder_flags(app, f.learning);
  app.add_option("--begin-with", f.begin_with,
                 "Continue training this model, with its languages, tokenizer, "
                 "sizes and weights")
      ->type_name("FOLDER")
      ->group(group);
}

void add_text(App& app, TrainTranslateFlags& f) {
  const char* group = "Text";
  app.add_option("--tokenizer", f.tokenizer,
                 "Use the tokenizer of this folder instead of training one")
      ->type_name("FOLDER")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--pieces", f.pieces,
                 "unigram or bpe: SentencePiece learns subwords; words: the "
                 "text is tokenized already (@@ is joined again)")
      ->check(member_of({"unigram", "bpe", "words"}))
      ->capture_default_str()
      ->excludes("--tokenizer")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--vocab", f.vocab,
                 "Vocabulary size, for both languages together")
      ->check(whole_between(10, 1000000))
      ->capture_default_str()
      ->excludes("--tokenizer")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--coverage", f.coverage,
                 "Share of the characters in the vocabulary")
      ->check(real_between(0.98, 1))
      ->capture_default_str()
      ->excludes("--tokenizer")
      ->excludes("--begin-with")
      ->group(group);
  app.add_option("--max-length", f.max_length,
                 "Leave out pairs with more tokens")
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
               "One model for both directions")
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
  app.add_option("--activation", f.activation,
                 "Activation of the feed-forward blocks")
      ->check(member_of({"relu", "gelu", "swiglu"}))
      ->capture_default_str()
      ->excludes("--begin-with")
      ->group(group);
  app.add_flag("--norm-first", f.norm_first,
               "Norms before the sublayers (pre-norm), not after them")
      ->excludes("--begin-with")
      ->group(group);
  share("--dropout", f.dropout, "Dropout of embeddings and sublayers");
  share("--attention-dropout", f.attention_dropout,
        "Dropout of attention weights");
  share("--activation-dropout", f.activation_dropout,
        "Dropout inside the feed-forward blocks");
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
