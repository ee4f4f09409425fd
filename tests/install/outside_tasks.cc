// SPDX-License-Identifier: Apache-2.0
// A program outside the project that uses all of regard::tasks: a translator
// (its tokenizer is SentencePiece's) and a server of the viewer.
#include <cstdio>

#include "regard/tasks/score.h"
#include "regard/tasks/translator.h"
#include "regard/view/server.h"

int main(int, char** argv) {
  const auto translator = regard::tasks::Translator::load(argv[1]);
  const std::string thanks[] = {"Thank you very much."};
  const std::string text =
      translator.translate(thanks, {.to = "zh"})[0][0].text;
  if (regard::view::server_available()) {
    const regard::view::Server server(&translator, {});
    if (server.port() == 0) return 1;
  }
  const double bleu = regard::tasks::bleu(thanks, thanks).score;
  std::printf("%s BLEU %.0f\n", text.c_str(), bleu);
  return !text.empty() && bleu > 99 ? 0 : 1;
}
