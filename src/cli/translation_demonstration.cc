// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/alignment.h"
#include "cli/bundled.h"
#include "cli/commands.h"
#include "cli/screen.h"
#include "regard/tasks/translator.h"

namespace regard::cli {
namespace {

// None of them stands in what the translator learned from.
const std::vector<std::string> kEnglish = {
    "The old man is reading a book in the garden.",
    "Can you tell me where the station is?"};
const std::vector<std::string> kChinese = {
    // "My younger brother likes to swim in the river."
    "\u6211\u5f1f\u5f1f\u559c\u6b22\u5728\u6cb3\u91cc\u6e38\u6cf3\u3002",
    // "If it rains tomorrow, we will stay at home."
    "\u5982\u679c\u660e\u5929\u4e0b\u96e8\uff0c\u6211\u4eec\u5c31\u5f85"
    "\u5728\u5bb6\u91cc\u3002"};

void show(const tasks::Translator& translator,
          const std::vector<std::string>& sentences, const std::string& to,
          const Screen& screen) {
  tasks::TranslateOptions options;
  options.to = to;
  options.align = true;
  const auto found = translator.translate(sentences, options);
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    const tasks::Translation& best = found[i].front();
    print(fmt::format("{}\n  -> {}\n\n", sentences[i], best.text) +
          draw_alignment(best, screen) + "\n");
  }
}

}  // namespace

void run_translation_demonstration(const std::string& command) {
  const tasks::Translator translator =
      tasks::Translator::load(bundled_translator());
  const Screen screen = standard_output(ColorWhen::kAuto);
  print(
      "A Transformer that was trained with this program translates between\n"
      "English and Chinese. A row is a word of the translation, a column a "
      "word\n"
      "of the source; a darker cell is a larger attention weight.\n\n");
  show(translator, kEnglish, "zh", screen);
  show(translator, kChinese, "en", screen);
  print(fmt::format(
      "Your own sentence:   {0} translate \"...\"\n"
      "In a browser:        {0} view\n"
      "Classify a text:     {0} classify --explain \"The soup was not bad.\"\n"
      "Answer a question:   {0} answer --context examples/story.txt \"Where is "
      "Ada?\"\n"
      "Summarize:           {0} summarize examples/dialogue.txt\n"
      "Recommend items:     {0} recommend --why --history \"Harbour 1, Harbour "
      "2\"\n"
      "Describe a picture:  {0} caption --show examples/shapes.png\n"
      "Classify a clip:     {0} video examples/shapes/orbits.npy\n"
      "Attention only:      {0} attend\n"
      "All commands:        {0} --help\n",
      command));
}

}  // namespace regard::cli
