// SPDX-License-Identifier: Apache-2.0
// Cuts lines into pieces and joins them again, for tests in other languages:
//
//   tokenizer_driver TOKENIZER < LINES
//   tokenizer_driver --time COUNT TOKENIZER < LINES
//
// A line is the number of its bytes, a newline, and the bytes. For each comes
// one line of JSON: ids, special (ids with special tokens), types, words,
// offsets, and text, what the ids decode to. With --time, COUNT rounds over all
// lines, and the fewest seconds that one took.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/text/tokenizer.h"

namespace {

using namespace regard;
using nlohmann::json;

std::vector<std::string> read_input() {
  const std::string all{std::istreambuf_iterator<char>(std::cin), {}};
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < all.size();) {
    std::size_t digits = 0;
    const std::size_t length = std::stoul(all.substr(at, 20), &digits);
    at += digits + 1;
    lines.push_back(all.substr(at, length));
    at += length;
  }
  return lines;
}

json describe(const text::Tokenizer& tokenizer, const std::string& line) {
  const text::Encoding plain =
      tokenizer.encode(line, {.add_special_tokens = false, .offsets = true});
  const text::Encoding special = tokenizer.encode(line, {});
  json offsets = json::array();
  for (const auto& range : plain.offsets) {
    offsets.push_back({range.begin, range.end});
  }
  return {{"ids", plain.ids},
          {"unasked", tokenizer.encode(line)},
          {"special", special.ids},
          {"types", special.types},
          {"words", plain.words},
          {"offsets", std::move(offsets)},
          {"text", tokenizer.decode(plain.ids)},
          {"all", tokenizer.decode(special.ids, text::SpecialTokens::kKeep)}};
}

double fewest_seconds(const text::Tokenizer& tokenizer,
                      const std::vector<std::string>& lines, int rounds) {
  double fewest = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::size_t count = 0;
    for (const std::string& line : lines)
      count += tokenizer.encode(line).size();
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - start;
    if (count > 0) fewest = std::min(fewest, took.count());
  }
  return fewest;
}

int run(int argc, char** argv) {
  const bool timed = argc == 4 && std::string(argv[1]) == "--time";
  if (!timed && argc != 2) {
    std::cerr << "tokenizer_driver [--time COUNT] TOKENIZER < LINES\n";
    return 2;
  }
  const auto tokenizer = text::load_tokenizer(argv[argc - 1]);
  const std::vector<std::string> lines = read_input();
  if (timed) {
    std::cout << fewest_seconds(*tokenizer, lines, std::stoi(argv[2])) << "\n";
    return 0;
  }
  for (const std::string& line : lines) {
    std::cout << describe(*tokenizer, line)
                     .dump(-1, ' ', true, json::error_handler_t::replace)
              << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
