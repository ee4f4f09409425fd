// SPDX-License-Identifier: Apache-2.0
// regard translate: a trained model at work.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/alignment.h"
#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/heat_map.h"
#include "cli/number_list.h"
#include "cli/screen.h"
#include "cli/standard_input.h"
#include "cli/usage_error.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/translate_text.h"
#include "regard/tasks/translator.h"
#include "regard/text/lines.h"

namespace regard::cli {
namespace {

struct TranslateFlags {
  std::vector<std::string> sentences;
  std::string model;
  std::string input;
  std::string to;
  std::int64_t beam = 5;
  std::int64_t nbest = 1;
  std::optional<double> length_penalty;
  std::int64_t max_length = 0;
  std::int64_t batch = 32;
  bool align = false;
  bool whole = false;
  bool json = false;
  bool show = false;
  std::string attention = "cross";
  std::int64_t layer = -1;  // the last but one
  std::string head;
  std::int64_t top = 0;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
  int threads = 0;
};

constexpr const char* kFooter =
    R"(Sentences come from the command line, from a file, or from standard input, one
per line, and their translations go to standard output in the same order. A
blank line stays blank. A line with several sentences is split into sentences,
and their translations are joined again; --nbest, --align, --show and --whole
take the line as one sentence. --nbest prints a line for each translation:
number of the sentence, score, translation, separated by tabs. --align draws
which source words each word of the translation attends to; with --json it
prints the numbers. --show draws each head of one layer: cross attention from
decoder to source, or self attention of the encoder or decoder. `regard view`
shows all of them.

Examples:
  regard translate "I would like a cup of tea."
  regard translate --align "My sister lives in a small house near the sea."
  regard translate --to zh < sentences.en > sentences.zh
  regard translate --model en-de "a man rides a bicycle ."
  regard translate --model en-de --show --layer 2 --head 0,3 "a man sleeps ."
  regard translate --model en-de --input test.en --nbest 5)";

// The heads of one layer.
std::string drawn(const tasks::TranslationTrace& trace,
                  const TranslateFlags& flags, const Screen& screen) {
  const bool encoder = flags.attention == "encoder";
  const bool decoder = flags.attention == "decoder";
  const Tensor& weights = encoder   ? trace.weights.encoder
                          : decoder ? trace.weights.decoder
                                    : trace.weights.cross;
  const auto all = weights.view<float, 4>();
  require(all.extent(0) > 0, "--attention", "the model has no ",
          flags.attention);
  const std::int64_t layer = flags.layer >= 0
                                 ? flags.layer
                                 : std::max<std::int64_t>(all.extent(0) - 2, 0);
  check_below({layer}, all.extent(0), "--layer", "layers");
  std::vector<std::int64_t> heads = parse_numbers(flags.head, "--head");
  check_below(heads, all.extent(1), "--head", "heads");
  HeatMaps::Labels labels;
  for (const std::string& piece : encoder ? trace.source : trace.written) {
    labels.queries.push_back(piece_label(piece));
  }
  for (const std::string& piece : decoder ? trace.read : trace.source) {
    labels.keys.push_back(piece_label(piece));
  }
  HeatMaps map({all.extent(1), all.extent(2), all.extent(3)}, std::move(labels),
               screen, {std::move(heads), flags.top});
  for (std::int64_t head = 0; head < all.extent(1); ++head) {
    for (std::int64_t row = 0; row < all.extent(2); ++row) {
      map.add_row(head, row, all.at(layer, head, row));
    }
  }
  return fmt::format("{}, layer {} of {}\n", flags.attention, layer,
                     all.extent(0)) +
         map.draw();
}

void check_language(const tasks::Languages& languages, const std::string& to) {
  if (to.empty() || to == languages.target) return;
  if (languages.both_directions && to == languages.source) return;
  throw UsageError(
      fmt::format("--to: the model translates into {}{}; got '{}'",
                  languages.both_directions ? languages.source + " and " : "",
                  languages.target, to));
}

class Output {
 public:
  explicit Output(const TranslateFlags& flags)
      : flags_(flags), screen_(standard_output(ColorWhen::kAuto)) {}

  void write(const std::vector<tasks::Translation>& found) {
    print(lines_of(found, ++number_));
  }

  // What is written for sentence `number`, from 1.
  std::string lines_of(const std::vector<tasks::Translation>& found,
                       std::int64_t number) const {
    std::string lines;
    for (const tasks::Translation& translation : found) {
      if (flags_.json) {
        lines += for_output(json_of(translation, number));
      } else if (flags_.nbest > 1) {
        lines += fmt::format("{}\t{:.4f}\t{}\n", number, translation.score,
                             for_output(translation.text));
      } else {
        lines += for_output(translation.text) + "\n";
      }
      if (flags_.align && !flags_.json) {
        lines += draw_alignment(translation, screen_);
      }
    }
    return lines;
  }

  void write(const tasks::TranslationTrace& trace) const {
    // Symbols alone are copied, and no head looks at them. Drawn first: a
    // --layer that is not there leaves nothing half said.
    const std::string picture =
        trace.source.empty() ? "" : drawn(trace, flags_, screen_);
    print(for_output(trace.text) + "\n" + picture);
    std::fflush(stdout);
  }
  void write_blank() const { print("\n"); }
  bool shows_heads() const { return flags_.show; }

 private:
  std::string json_of(const tasks::Translation& translation,
                      std::int64_t number) const {
    Json line = {{"sentence", number},
                 {"score", translation.score},
                 {"translation", translation.text}};
    if (flags_.align) {
      line["source_pieces"] = translation.source_pieces;
      line["target_pieces"] = translation.target_pieces;
      line["alignment"] = translation.alignment;
    }
    return line.dump({.replace_invalid = true}) + "\n";
  }

  const TranslateFlags& flags_;
  Screen screen_;
  std::int64_t number_ = 0;
};

// What there is to do, beside the sentences.
struct Work {
  const tasks::Translator& translator;
  tasks::TranslateOptions options;
  bool whole;  // a line is one sentence
};

std::vector<std::vector<tasks::Translation>> translate_part(
    const Work& work, std::span<const std::string> lines) {
  if (work.whole) return work.translator.translate(lines, work.options);
  std::vector<std::vector<tasks::Translation>> results;
  for (auto& best :
       tasks::translate_texts(work.translator, lines, work.options)) {
    results.push_back({std::move(best)});
  }
  return results;
}

// Each sentence on its own, with what its heads looked at.
void show_all(const Work& work, std::span<const std::string> sentences,
              const Output& output) {
  const tasks::Translator& translator = work.translator;
  for (const std::string& sentence : sentences) {
    if (translator.tokenizer().encode(sentence).empty()) {
      output.write_blank();
      continue;
    }
    output.write(translator.trace(sentence, work.options));
  }
}

// Parts, so that a long file shows its first lines early; long enough that
// sentences of like length find each other.
constexpr std::size_t kPart = 1024;

// The lines of a file, by all ranks.
void translate_file(const Work& work, std::span<const std::string> sentences,
                    const Output& output, dist::Communicator& ranks) {
  print_answers(ranks, std::ssize(sentences), kPart, [&](dist::Part share) {
    const auto part =
        sentences.subspan(static_cast<std::size_t>(share.begin),
                          static_cast<std::size_t>(share.end - share.begin));
    std::string lines;
    std::int64_t number = share.begin;
    for (const auto& found : translate_part(work, part)) {
      lines += output.lines_of(found, ++number);
    }
    return lines;
  });
}

void translate_all(const Work& work, std::span<const std::string> sentences,
                   Output& output) {
  if (output.shows_heads()) return show_all(work, sentences, output);
  for (std::size_t begin = 0; begin < sentences.size(); begin += kPart) {
    const auto part =
        sentences.subspan(begin, std::min(kPart, sentences.size() - begin));
    for (const auto& found : translate_part(work, part)) {
      output.write(found);
    }
  }
}

// Line by line where somebody or another program waits for each answer.
void translate_stream(const Work& work, Output& output) {
  InputLines input("translate");
  std::vector<std::string> lines;
  std::string line;
  const auto next = [&] {
    try {
      return input.next(line);
    } catch (...) {  // what came before the line that is wrong has its answer
      translate_all(work, lines, output);
      throw;
    }
  };
  while (next()) {
    lines.push_back(line);
    if (!input.waits() && lines.size() < kPart) continue;
    translate_all(work, lines, output);
    lines.clear();
  }
  translate_all(work, lines, output);
}

// One sentence is one line, of the output too.
void join_lines(std::vector<std::string>& sentences) {
  for (std::string& sentence : sentences) {
    std::replace_if(
        sentence.begin(), sentence.end(),
        [](char c) { return c == '\n' || c == '\r'; }, ' ');
  }
}

void run_translate(const TranslateFlags& flags, Ranks& ranks) {
  if (!flags.input.empty() && !flags.sentences.empty()) {
    throw UsageError("give sentences or --input, not both");
  }
  if (flags.nbest > flags.beam) {
    throw UsageError(fmt::format("--nbest {} needs a --beam as wide, not {}",
                                 flags.nbest, flags.beam));
  }
  if (flags.show && (flags.align || flags.json || flags.nbest > 1)) {
    throw UsageError("--show goes without --align, --json and --nbest");
  }
  if (!flags.show && (flags.layer >= 0 || !flags.head.empty() ||
                      flags.top > 0 || flags.attention != "cross")) {
    throw UsageError("--attention, --layer, --head and --top go with --show");
  }
  if (ranks.launched() > 1 && (flags.input.empty() || flags.show)) {
    throw UsageError(
        "several ranks share the lines of --input, without --show");
  }
  check_utf8(flags.sentences, "translate");
  ranks.check_threads({.count = flags.threads});
  const tasks::Translator translator = tasks::Translator::load(
      flags.model.empty() ? bundled_translator() : flags.model, flags.weights);
  check_language(translator.config().languages, flags.to);
  tasks::TranslateOptions options;
  options.beam = flags.beam;
  options.nbest = flags.nbest;
  options.length_penalty = flags.length_penalty;
  options.max_length = flags.max_length;
  options.align = flags.align;
  options.to = flags.to;
  options.batch = flags.batch;
  options.threads = {.count = flags.threads};
  Output output(flags);
  const Work work{translator, options,
                  flags.whole || flags.align || flags.nbest > 1};
  if (!flags.sentences.empty()) {
    std::vector<std::string> sentences = flags.sentences;
    if (work.whole || flags.show) join_lines(sentences);
    translate_all(work, sentences, output);
  } else if (!flags.input.empty()) {
    const std::vector<std::string> lines = text::read_lines(flags.input);
    if (ranks.launched() > 1) {
      translate_file(work, lines, output, ranks.communicator());
    } else {
      translate_all(work, lines, output);
    }
  } else {
    // Somebody who typed no sentence would wait, and so would we.
    if (isatty(STDIN_FILENO) != 0) {
      std::fputs("One sentence per line; Ctrl-D ends.\n", stderr);
    }
    translate_stream(work, output);
  }
}

}  // namespace

Command add_translate(App& program, Ranks& ranks) {
  const auto flags = std::make_shared<TranslateFlags>();
  App* app =
      program.add_subcommand("translate", "Translate with a trained model");
  app->footer(kFooter);
  app->add_option("SENTENCES", flags->sentences, "What to translate")
      ->type_name("TEXT");
  app->add_option(
         "--model", flags->model,
         "Folder that `regard train translate` made, or one of CTranslate2 or "
         "Hugging Face (Marian, T5, BART); if not given, the bundled "
         "translator: English and Chinese, both ways")
      ->type_name("FOLDER");
  app->add_option("--input", flags->input, "Sentences, one per line")
      ->type_name("FILE");
  app->add_option("--to", flags->to,
                  "Target language, for a model with both directions; if one "
                  "is zh, the script of the sentence decides");
  app->add_option("--beam", flags->beam, "Beam width; 1: greedy")
      ->check(whole_between(1, 1000))
      ->capture_default_str();
  app->add_option("--nbest", flags->nbest, "Translations shown per sentence")
      ->check(whole_between(1, 1000))
      ->capture_default_str();
  app->add_option("--length-penalty", flags->length_penalty,
                  "Scores are divided by length^penalty: above 1 for longer "
                  "translations. Without it, as the model's config.json has "
                  "it, or 1")
      ->check(real_between(-10, 10));
  app->add_option("--max-length", flags->max_length,
                  "Longest translation, in tokens; 0: 2 * source + 20")
      ->check(whole_between(0, 100000))
      ->capture_default_str();
  app->add_option("--batch", flags->batch, "Sentences per batch")
      ->check(whole_between(1, 100000))
      ->capture_default_str();
  app->add_flag("--whole", flags->whole, "Do not split lines into sentences");
  app->add_flag("--align", flags->align,
                "Show which source words each word attends to");
  app->add_flag("--show", flags->show,
                "Draw the attention of each head of one layer");
  app->add_option("--attention", flags->attention,
                  "With --show: cross, encoder or decoder")
      ->check(member_of({"cross", "encoder", "decoder"}))
      ->type_name("KIND")
      ->capture_default_str();
  app->add_option("--layer", flags->layer,
                  "With --show: the layer; the last but one if not given")
      ->type_name("N")
      ->check(whole_between(0, 10000));
  add_picture_flags(*app, flags->head, flags->top);
  app->add_flag("--json", flags->json, "A line of JSON for each translation");
  add_weights_flag(*app, flags->weights);
  app->add_option("--threads", flags->threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  return {app, [flags, &ranks] { run_translate(*flags, ranks); }, true};
}

}  // namespace regard::cli
