// SPDX-License-Identifier: Apache-2.0
// regard search: the lines of a file that mean what a query means.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/content_hash.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/standard_input.h"
#include "cli/tensor_file.h"
#include "cli/text.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/text_encoder.h"
#include "regard/tasks/text_search.h"
#include "regard/text/lines.h"

namespace regard::cli {
namespace {

namespace fs = std::filesystem;

struct SearchFlags {
  std::vector<std::string> queries;
  std::string model;
  std::string corpus;
  std::string index;
  std::int64_t top = 5;
  bool json = false;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
  int threads = 0;
};

constexpr const char* kFooter =
    R"(Finds the lines whose vectors are most similar to the query's (semantic search,
not by words). For each the output has a line: the cosine similarity, the line
number in the file, and the line.

The model is a folder as for `regard embed`. The vectors of the corpus are
computed once and stored in an index, CORPUS.index.safetensors unless --index
names another file; they are computed again when the corpus or the model has
changed. Blank lines are skipped. If the model has prompts for queries and
documents, they are used. Without a query, queries are read from standard input,
one per line.

Examples:
  regard search --model all-MiniLM-L6-v2 --corpus notes.txt "trains to Paris"
  regard search --model all-MiniLM-L6-v2 --corpus notes.txt --top 3 --json "tea"
  regard search --model all-MiniLM-L6-v2 --corpus notes.txt
      read queries from the terminal, one per line; Ctrl-D ends)";

constexpr const char* kFormat = "regard search index 1";

// The first of some prompts that the model has; empty: none.
std::string prompt_of(const tasks::TextEncoderConfig& config,
                      std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (config.prompts.contains(name)) return name;
  }
  return {};
}

// The lines of a corpus that are not blank.
struct Corpus {
  std::vector<std::string> lines;
  std::vector<std::int64_t> numbers;  // from 1 on

  explicit Corpus(const fs::path& path) {
    std::vector<std::string> all = text::read_lines(path);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (text::is_blank(all[i])) continue;
      numbers.push_back(static_cast<std::int64_t>(i) + 1);
      lines.push_back(std::move(all[i]));
    }
    require(!lines.empty(), "search", "'", path.string(),
            "' has no lines to search");
  }
};

// What the vectors of an index were made of. Every file of a model counts.
std::map<std::string, std::string> fingerprint(const SearchFlags& flags) {
  std::string files;
  std::map<std::string, fs::path> sorted;
  for (const auto& entry : fs::recursive_directory_iterator(flags.model)) {
    const std::string name = entry.path().filename().string();
    const bool counts =
        entry.is_regular_file() && !name.starts_with('.') &&
        (name == "model.safetensors" || name.ends_with(".json") ||
         name.ends_with(".txt") || name.ends_with(".model"));
    if (counts) sorted[entry.path().string()] = entry.path();
  }
  for (const auto& [name, path] : sorted) {
    files +=
        fs::relative(path, flags.model).string() + " " + file_hash(path) + "\n";
  }
  return {{"format", kFormat},
          {"corpus", file_hash(flags.corpus)},
          {"model", content_hash(files)},
          {"weights", weights_name(flags.weights)}};
}

fs::path index_path(const SearchFlags& flags) {
  return flags.index.empty() ? flags.corpus + ".index.safetensors"
                             : flags.index;
}

// The index, if it is there and of this corpus and model. A file that is no
// index at all is somebody's, and must not be overwritten.
std::optional<Tensor> load_index(
    const fs::path& path, const std::map<std::string, std::string>& made_of,
    std::int64_t rows, std::int64_t width) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() ||
      !format->second.starts_with("regard search index")) {
    throw_parse_error("search", "'", path.string(),
                      "' is no index of regard search, and stays as it is; "
                      "name another file with --index");
  }
  if (file.metadata() != made_of || !file.contains("embeddings")) {
    return std::nullopt;
  }
  Tensor vectors = file.tensor("embeddings");
  if (vectors.dtype() != DType::kFloat32 ||
      vectors.shape() != Shape{rows, width}) {
    return std::nullopt;
  }
  return vectors;
}

Tensor make_index(const tasks::TextEncoder& encoder, const Corpus& corpus,
                  Threads threads) {
  Progress progress("indexing", "lines");
  return encoder.encode(
      corpus.lines,
      {.prompt = prompt_of(encoder.config(), {"document", "passage", "corpus"}),
       .threads = threads,
       .progress = [&](std::int64_t done, std::int64_t all) {
         progress.update(done, all);
       }});
}

Tensor indexed(const tasks::TextEncoder& encoder, const Corpus& corpus,
               const SearchFlags& flags) {
  const fs::path path = index_path(flags);
  const auto made_of = fingerprint(flags);
  const auto rows = static_cast<std::int64_t>(corpus.lines.size());
  if (auto kept =
          load_index(path, made_of, rows, encoder.config().embedding_dim())) {
    return *std::move(kept);
  }
  check_can_save(path.string());
  StateDict state;
  state.emplace("embeddings",
                make_index(encoder, corpus, {.count = flags.threads}));
  save_safetensors(path, state, made_of);
  return std::move(state.at("embeddings"));
}

class Searcher {
 public:
  explicit Searcher(const SearchFlags& flags)
      : flags_(flags),
        corpus_(flags.corpus),
        encoder_(tasks::TextEncoder::load(flags.model, {.count = flags.threads},
                                          flags.weights)),
        vectors_(indexed(encoder_, corpus_, flags)) {}

  void answer(const std::vector<std::string>& queries) const {
    const Threads threads{.count = flags_.threads};
    const Tensor asked = encoder_.encode(
        queries, {.prompt = prompt_of(encoder_.config(), {"query"}),
                  .threads = threads});
    const auto hits =
        tasks::nearest(vectors_.view<float, 2>(), asked.view<float, 2>(),
                       {.top = flags_.top, .threads = threads});
    for (std::size_t q = 0; q < queries.size(); ++q) {
      if (flags_.json) {
        print(json_of(queries[q], hits[q]));
        continue;
      }
      if (queries.size() > 1) {
        print(
            fmt::format("{}{}\n", q == 0 ? "" : "\n", on_one_line(queries[q])));
      }
      for (const tasks::SearchHit& hit : hits[q]) {
        const auto row = static_cast<std::size_t>(hit.row);
        print(fmt::format("{:.3f}  {}  {}\n", hit.similarity,
                          corpus_.numbers[row],
                          on_one_line(corpus_.lines[row])));
      }
    }
    std::fflush(stdout);
  }

 private:
  std::string json_of(const std::string& query,
                      const std::vector<tasks::SearchHit>& hits) const {
    Json found = Json::array();
    for (const tasks::SearchHit& hit : hits) {
      const auto row = static_cast<std::size_t>(hit.row);
      found.push_back({{"similarity", hit.similarity},
                       {"line", corpus_.numbers[row]},
                       {"text", corpus_.lines[row]}});
    }
    const Json all = {{"query", query}, {"hits", std::move(found)}};
    return all.dump({.keys = Json::Keys::kAsWritten, .replace_invalid = true}) +
           "\n";
  }

  const SearchFlags& flags_;
  Corpus corpus_;
  tasks::TextEncoder encoder_;
  Tensor vectors_;
};

void run_search(const SearchFlags& flags) {
  check_words(flags.queries, "search");
  const Searcher searcher(flags);
  if (!flags.queries.empty()) return searcher.answer(flags.queries);
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("One query per line; Ctrl-D ends.\n", stderr);
  }
  InputLines input("search");
  std::string line;
  while (input.next(line)) {
    if (!text::is_blank(line)) searcher.answer({line});
  }
}

}  // namespace

Command add_search(App& program) {
  const auto flags = std::make_shared<SearchFlags>();
  App* app = program.add_subcommand("search",
                                    "Semantic search in the lines of a file");
  app->footer(kFooter);
  app->add_option("QUERIES", flags->queries, "What to look for")
      ->type_name("TEXT");
  app->add_option("--model", flags->model, "The model's folder")
      ->type_name("FOLDER")
      ->required();
  app->add_option("--corpus", flags->corpus,
                  "The file to search, one text per line")
      ->type_name("FILE")
      ->required();
  app->add_option("--index", flags->index,
                  "Where the vectors are kept; CORPUS.index.safetensors if not "
                  "given")
      ->type_name("FILE")
      ->check([](const std::string& name) {
        return name.ends_with(".safetensors")
                   ? std::string()
                   : "an index is a .safetensors file; got '" + name + "'";
      });
  app->add_option("--top", flags->top, "Lines shown for each query")
      ->type_name("K")
      ->check(whole_between(1, 1000000))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "A line of JSON for each query");
  add_weights_flag(*app, flags->weights);
  add_threads_flag(*app, flags->threads);
  return {app, [flags] { run_search(*flags); }};
}

}  // namespace regard::cli
