// SPDX-License-Identifier: Apache-2.0
// regard caption: what is in pictures.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/picture_drawing.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/usage_error.h"
#include "cli/view_model.h"
#include "cli/view_page.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/captioner.h"
#include "regard/view/caption.h"
#include "regard/view/translation.h"

namespace regard::cli {
namespace fs = std::filesystem;

namespace {

struct CaptionFlags {
  std::vector<std::string> files;
  std::string model, score, pictures;
  std::int64_t beam = 1;
  double length_penalty = 1;
  std::int64_t max_length = 0;
  bool show = false;
  bool view = false;
  bool json = false;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
  int threads = 0;
  PageFlags page;
};

constexpr const char* kFooter =
    R"(Pictures are JPEG, PNG or WebP files. The output has a line for each: its
caption; with several pictures, the file's name and a tab come first. --show
draws each picture as the model sees it, and once more for each word, bright
where the word looks. --json has the attention weights of each word over the
patches, row by row. --weights applies to the Transformer; MobileNetV2 stays
float32.

--view opens a page with one picture, its caption, and for each word the
attention of every head; --export writes that page into a file. `regard view
--help` says who can reach it.

--score captions.tsv --pictures FOLDER captions every picture of a table (with
the columns `picture` and `caption`) and prints BLEU-1 to BLEU-4 of the corpus,
against all captions of each picture, as sacreBLEU counts them in lower case.

Examples:
  regard caption examples/shapes.png --show
  regard caption examples/shapes.png --view
  regard caption --model photos-model photo.jpg --beam 5
  regard caption --model photos-model --score test.tsv --pictures photos)";

tasks::CaptionOptions options_of(const CaptionFlags& flags) {
  return {.beam = flags.beam,
          .length_penalty = flags.length_penalty,
          .max_length = flags.max_length,
          .align = flags.show || flags.json,
          .threads = {.count = flags.threads}};
}

void score(const tasks::Captioner& model, const CaptionFlags& flags) {
  const tasks::CaptionTable truth = tasks::read_captions(flags.score);
  require(!truth.pictures.empty(), "caption", "there are no pictures in '",
          flags.score, "'");
  std::vector<fs::path> files;
  for (const std::string& name : truth.pictures) {
    files.push_back(fs::path(flags.pictures) / name);
  }
  tasks::CaptionOptions options = options_of(flags);
  options.align = false;
  std::vector<std::string> said;
  Progress progress("captioning", "pictures");
  constexpr std::size_t kAtOnce = 256;
  while (said.size() < files.size()) {
    const auto some = std::span(files).subspan(
        said.size(), std::min(kAtOnce, files.size() - said.size()));
    for (tasks::Caption& caption : model.caption(some, options)) {
      said.push_back(std::move(caption.text));
    }
    progress.update(std::ssize(said), std::ssize(files));
  }
  const tasks::BleuScore bleu = tasks::score_captions(said, truth);
  if (flags.json) {
    return print(Json{{"pictures", files.size()},
                      {"bleu", bleu.up_to_order},
                      {"words", bleu.hypothesis_length},
                      {"reference_words", bleu.reference_length},
                      {"captions", said}}
                     .dump({.replace_invalid = true}) +
                 "\n");
  }
  std::string out = fmt::format("{} pictures\n", files.size());
  for (std::size_t n = 0; n < bleu.up_to_order.size(); ++n) {
    out += fmt::format("BLEU-{}  {:.2f}\n", n + 1, bleu.up_to_order[n]);
  }
  print(out + fmt::format("words   {} said, {} in the nearest captions\n",
                          bleu.hypothesis_length, bleu.reference_length));
}

void show(const tasks::Captioner& model, const std::string& file,
          const tasks::Caption& caption) {
  const Screen screen = standard_output(ColorWhen::kAuto);
  const pictures::Picture seen = pictures::resize_and_crop(
      pictures::read_picture(file), model.config().pictures.side);
  constexpr std::int64_t kWhole = 48;  // characters across
  constexpr std::int64_t kPart = 16;
  std::string out;
  for (const std::string& line :
       draw_picture(pictures::resize(seen, kWhole, kWhole), screen)) {
    out += line + "\n";
  }
  out += "\n";
  std::vector<TitledDrawing> words;
  const pictures::Picture small = pictures::resize(seen, kPart, kPart);
  for (std::size_t i = 0; i < caption.pieces.size(); ++i) {
    words.push_back({caption.pieces[i],
                     draw_picture(lit(small, caption.alignment[i]), screen)});
  }
  print(out + side_by_side(words, kPart, screen));
}

void show_in_browser(const tasks::Captioner& model, const CaptionFlags& flags) {
  view::Trace trace =
      view::trace_caption(model, flags.files.front(), options_of(flags));
  if (flags.model.empty()) {
    trace.model = "shapes";
  } else {
    trace.model = name_of(flags.model);
    trace.note = view::read_note(flags.model);
  }
  show_page(trace, flags.page);
}

void run(const CaptionFlags& flags) {
  const bool scores = !flags.score.empty();
  if (scores == !flags.files.empty()) {
    throw UsageError("give pictures, or --score and --pictures");
  }
  if (scores != !flags.pictures.empty()) {
    throw UsageError("--score and --pictures go together");
  }
  if (flags.show && (flags.json || scores)) {
    throw UsageError("--show goes with neither --json nor --score");
  }
  const bool page = flags.view || !flags.page.export_to.empty();
  if (page && (flags.files.size() != 1 || flags.show || flags.json)) {
    throw UsageError(
        "--view and --export show one picture, without --show and --json");
  }
  check_page_options(flags.page, page);
  const tasks::Captioner model = tasks::Captioner::load(
      flags.model.empty() ? bundled_model("shapes") : flags.model,
      flags.weights);
  if (flags.model.empty()) {
    std::fputs(
        "(using the tiny bundled model, trained on drawn shapes only; --model "
        "names another)\n",
        stderr);
  }
  if (scores) return score(model, flags);
  if (page) return show_in_browser(model, flags);
  const std::vector<fs::path> files(flags.files.begin(), flags.files.end());
  const auto captions = model.caption(files, options_of(flags));
  for (std::size_t i = 0; i < captions.size(); ++i) {
    const tasks::Caption& caption = captions[i];
    if (flags.json) {
      Json words = Json::array();
      for (std::size_t w = 0; w < caption.pieces.size(); ++w) {
        words.push_back(
            {{"word", caption.pieces[w]}, {"looked", caption.alignment[w]}});
      }
      // The name of a file may be any bytes, and so may what a model writes.
      print_written(Json{{"picture", flags.files[i]},
                         {"caption", caption.text},
                         {"score", caption.score},
                         {"words", std::move(words)}}
                        .dump({.replace_invalid = true}) +
                    "\n");
      continue;
    }
    print_written(
        (captions.size() > 1 ? flags.files[i] + "\t" : std::string()) +
        caption.text + "\n");
    if (flags.show) show(model, flags.files[i], caption);
  }
}

}  // namespace

Command add_caption(App& program) {
  const auto flags = std::make_shared<CaptionFlags>();
  App* app = program.add_subcommand("caption", "Describe pictures");
  app->footer(kFooter);
  app->add_option("PICTURES", flags->files, "Pictures to describe")
      ->type_name("FILE");
  app->add_option("--model", flags->model,
                  "Folder that `regard train caption` made; if not given, a "
                  "tiny bundled one for drawn shapes")
      ->type_name("FOLDER");
  app->add_option("--beam", flags->beam, "Beam width; 1: greedy")
      ->check(whole_between(1, 1000))
      ->capture_default_str();
  app->add_option("--length-penalty", flags->length_penalty,
                  "Scores are divided by length^PENALTY")
      ->check(real_between(-10, 10))
      ->capture_default_str();
  app->add_option("--max-length", flags->max_length,
                  "Longest caption, in tokens; 0: as in training")
      ->check(whole_between(0, 10000))
      ->capture_default_str();
  app->add_option("--score", flags->score,
                  "Compare with the captions of a table")
      ->type_name("FILE");
  app->add_option("--pictures", flags->pictures,
                  "Where the pictures of --score are")
      ->type_name("FOLDER");
  app->add_flag("--show", flags->show, "Draw where each word looks");
  app->add_flag("--view", flags->view,
                "Show where each word looks in the browser");
  app->add_flag("--json", flags->json, "JSON, a line for each picture");
  add_page_options(*app, flags->page, "The page");
  add_weights_flag(*app, flags->weights);
  app->add_option("--threads", flags->threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
