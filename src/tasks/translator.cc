// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/translator.h"

#include <algorithm>
#include <utility>

#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/nn/decoding.h"
#include "regard/tasks/quantize.h"
#include "tasks/beam_search.h"
#include "tasks/copied_parts.h"
#include "tasks/imported_translator.h"
#include "tasks/rounded_state.h"

namespace regard::tasks {
namespace fs = std::filesystem;

struct Translator::Parts {
  TranslatorConfig config;
  TranslatorTokens tokens{};
  std::shared_ptr<const text::Tokenizer> source, target;
  nn::TransformerDecoder decoder;
  bool imported = false;
};

namespace {

void check(const TranslateOptions& options, const Languages& languages) {
  const char* where = "Translator::translate";
  constexpr std::int64_t kWidest = 1000;
  require(options.beam >= 1 && options.beam <= kWidest, where,
          "the beam must be from 1 to ", kWidest, "; got ", options.beam);
  require(options.nbest >= 1 && options.nbest <= options.beam, where,
          "nbest must be from 1 to the beam, ", options.beam, "; got ",
          options.nbest);
  require(options.max_length >= 0 && options.batch >= 1, where,
          "max_length must not be negative and batch positive; got ",
          options.max_length, " and ", options.batch);
  require(is_length_penalty(options.length_penalty.value_or(1)), where,
          "length_penalty must be from -10 to 10; got ",
          options.length_penalty.value_or(1));
  require(options.no_repeat_ngram >= 0, where,
          "no_repeat_ngram must not be negative; got ",
          options.no_repeat_ngram);
  if (languages.both_directions) {
    const bool script_tells = !language_to(languages, "").empty();
    require(options.to == languages.source || options.to == languages.target ||
                (options.to.empty() && script_tells),
            where, "the model translates into ", languages.source, " and ",
            languages.target, "; say which: got '", options.to, "'");
  } else {
    require(options.to.empty() || options.to == languages.target, where,
            "the model translates into ", languages.target, "; got '",
            options.to, "'");
  }
}

void check_vocabulary(const text::Tokenizer* tokenizer, std::int64_t vocab) {
  require(tokenizer != nullptr && tokenizer->size() == vocab, "Translator",
          "the model has ", vocab, " pieces, the tokenizer ",
          tokenizer ? tokenizer->size() : 0);
}

// Tables of others may be a little longer than the vocabulary, so that their
// size is a round number.
void check_fits(const text::Tokenizer& tokenizer, std::int64_t vocab) {
  constexpr std::int64_t kMostUnused = 1024;
  require(tokenizer.size() <= vocab && tokenizer.size() + kMostUnused >= vocab,
          "Translator", "the model has ", vocab, " pieces, the tokenizer ",
          tokenizer.size());
}

}  // namespace

Translator::Translator(TranslatorConfig config,
                       std::unique_ptr<text::Tokenizer> tokenizer,
                       StateDict weights, ops::WeightStorage storage) {
  require(is_length_penalty(config.length_penalty), "Translator",
          "length_penalty must be from -10 to 10; got ", config.length_penalty);
  // One tokenizer serves both sides.
  check_vocabulary(tokenizer.get(), config.model.source_vocab);
  check_vocabulary(tokenizer.get(), config.model.target_vocab);
  const nn::Transformer model(config.model, std::move(weights));
  const std::shared_ptr<const text::Tokenizer> both = std::move(tokenizer);
  TranslatorTokens tokens;
  tokens.by_lines = config.whole_texts;
  parts_.reset(new Parts{.config = std::move(config),
                         .tokens = std::move(tokens),
                         .source = both,
                         .target = both,
                         .decoder = nn::TransformerDecoder(model, storage)});
}

Translator::Translator(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}
Translator::~Translator() = default;
Translator::Translator(Translator&&) noexcept = default;
Translator& Translator::operator=(Translator&&) noexcept = default;

bool Translator::is_imported() const { return parts_->imported; }
const TranslatorConfig& Translator::config() const { return parts_->config; }
const text::Tokenizer& Translator::tokenizer() const { return *parts_->source; }
const text::Tokenizer& Translator::target_tokenizer() const {
  return *parts_->target;
}

Translator Translator::load(const fs::path& folder,
                            ops::WeightStorage weights) {
  if (weights == ops::WeightStorage::kAsStored) {
    weights = weights_for(weights, stored_weights(folder), "Translator::load");
  }
  const fs::path config_path = folder / "config.json";
  const fs::path ctranslate2 = find_ctranslate2(folder);
  const bool of_others =
      !ctranslate2.empty() ||
      (io::is_there(config_path) &&
       is_hugging_face(io::read_regular(config_path, "Translator::load")));
  try {
    if (!of_others) {
      TranslatorFiles files = load_translator_files(folder);
      return {std::move(files.config), std::move(files.tokenizer),
              std::move(files.weights), weights};
    }
    ImportedTranslator imported = ctranslate2.empty()
                                      ? load_hugging_face(folder)
                                      : load_ctranslate2(folder);
    const nn::TransformerConfig& model = imported.config.model;
    check_fits(*imported.source, model.source_vocab);
    check_fits(*imported.target, model.target_vocab);
    for (auto id = static_cast<std::int32_t>(imported.target->size());
         id < model.target_vocab; ++id) {
      imported.tokens.never.push_back(id);
    }
    nn::TransformerDecoder decoder(model, imported.weights, weights);
    return Translator(std::make_unique<Parts>(
        Parts{std::move(imported.config), std::move(imported.tokens),
              std::move(imported.source), std::move(imported.target),
              std::move(decoder), true}));
  } catch (const InvalidArgument& refused) {
    throw_parse_error("Translator::load", "the files of '", folder.string(),
                      "' do not fit each other: ", refused.what());
  }
}

namespace {

// A sentence as the encoder reads it, and its number.
struct Source {
  std::size_t number;
  SourceText text;
  std::vector<std::int32_t> pieces;  // with the special ones
  std::int64_t before = 0;           // special ones before the text's own
};

std::vector<Source> encode(std::span<const std::string> sentences,
                           const Translator& translator,
                           const TranslatorTokens& tokens,
                           const std::string& to) {
  const text::Tokenizer& tokenizer = translator.tokenizer();
  const Languages& languages = translator.config().languages;
  const std::int64_t most = translator.config().model.max_length;
  std::vector<Source> sources;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    Source source{i,
                  tokens.by_lines ? SourceText{.pieces = encode_lines(
                                                   tokenizer, sentences[i])}
                                  : read_source(tokenizer, sentences[i]),
                  {}};
    if (source.text.pieces.empty() && source.text.head.empty()) continue;
    if (languages.both_directions) {
      source.pieces.push_back(tokenizer.id_of(
          tag_of(to.empty() ? language_to(languages, sentences[i]) : to)));
    }
    if (tokens.source_begin >= 0) source.pieces.push_back(tokens.source_begin);
    source.before = std::ssize(source.pieces);
    source.pieces.insert(source.pieces.end(), source.text.pieces.begin(),
                         source.text.pieces.end());
    if (tokens.source_end) {
      source.pieces.push_back(tokens.by_lines ? tokens.end
                                              : tokenizer.special().end);
    }
    require(std::ssize(source.pieces) <= most, "Translator::translate",
            "a sentence may have at most ", most, " pieces; sentence ", i + 1,
            " has ", source.pieces.size());
    sources.push_back(std::move(source));
  }
  return sources;
}

std::vector<std::string> written(const text::Tokenizer& tokenizer,
                                 std::span<const std::int32_t> pieces) {
  std::vector<std::string> names;
  for (const std::int32_t piece : pieces) {
    names.push_back(piece == nn::kZeroEmbedding ? "<s>"
                                                : tokenizer.piece(piece));
  }
  return names;
}

// Sentences that are translated together.
struct Batch {
  std::span<const Source> sources;
  bool copies;  // their translations have parts of the source
};

// Sentences of like length in one batch end at about the same step. There are
// as many for each thread.
std::vector<Batch> batches_of(std::vector<Source>& sources,
                              const TranslateOptions& options) {
  const auto copies = [](const Source& s) { return !s.text.parts.empty(); };
  std::stable_sort(sources.begin(), sources.end(),
                   [&](const Source& a, const Source& b) {
                     if (copies(a) != copies(b)) return copies(b);
                     return a.pieces.size() > b.pieces.size();
                   });
  const auto threads =
      static_cast<std::int64_t>(thread_count(options.threads, 1 << 20));
  std::vector<Batch> batches;
  for (std::size_t begin = 0; begin < sources.size();) {
    std::size_t end = begin;
    while (end < sources.size() &&
           copies(sources[end]) == copies(sources[begin])) {
      ++end;
    }
    const auto all = static_cast<std::int64_t>(end - begin);
    std::int64_t count = (all + options.batch - 1) / options.batch;
    count = (count + threads - 1) / threads * threads;
    const auto step = static_cast<std::size_t>((all + count - 1) / count);
    for (; begin < end; begin += std::min(step, end - begin)) {
      batches.push_back({std::span<const Source>(sources).subspan(
                             begin, std::min(step, end - begin)),
                         copies(sources[begin])});
    }
  }
  return batches;
}

}  // namespace

// One batch at a time, on the threads that are given.
class Translator::Search {
 public:
  Search(const Translator& translator, const TranslateOptions& options)
      : parts_(*translator.parts_), options_(options) {}

  std::vector<std::vector<Hypothesis>> operator()(const Batch& batch,
                                                  Threads threads) const {
    nn::PackedTokens packed;
    for (const Source& source : batch.sources) {
      packed.append(source.pieces);
    }
    nn::DecoderState state = parts_.decoder.start(packed, 1, threads);
    return BeamSearch<nn::DecoderState>(state, search_options(batch.copies))();
  }

  std::string text(const Source& source, const Hypothesis& best) const {
    if (source.text.parts.empty()) {
      return source.text.head + parts_.target->decode(best.tokens) +
             source.text.tail;
    }
    std::vector<std::vector<float>> weights;
    for (std::size_t t = 0; t < best.tokens.size(); ++t) {
      const std::vector<float>& row = best.alignment[t];
      weights.emplace_back(row.begin() + source.before, row.end());
    }
    return with_copied_parts(source.text, *parts_.target, best.tokens, weights);
  }

  Translation translation(const Source& source, const Hypothesis& best) const {
    Translation translation;
    translation.text = text(source, best);
    translation.score = best.score;
    if (!options_.align) return translation;
    translation.source_pieces = written(*parts_.source, source.pieces);
    translation.target_pieces = written(*parts_.target, best.tokens);
    translation.alignment = best.alignment;
    translation.alignment.resize(best.tokens.size());
    return translation;
  }

 private:
  SearchOptions search_options(bool copies) const {
    const nn::TransformerConfig& model = parts_.config.model;
    SearchOptions search;
    search.vocab = model.target_vocab;
    search.beam = options_.beam;
    search.length_penalty =
        options_.length_penalty.value_or(parts_.config.length_penalty);
    search.max_length = options_.max_length;
    search.no_repeat_ngram = options_.no_repeat_ngram;
    search.limit = model.max_length;
    search.begin = parts_.tokens.begin;
    search.end = parts_.tokens.end;
    search.first = parts_.tokens.first;
    search.never = parts_.tokens.never;
    if (copies) std::erase(search.never, parts_.target->special().unknown);
    if (copies || options_.align) {
      search.align_layer = std::max<std::int64_t>(model.decoder_layers - 2, 0);
    }
    return search;
  }

  const Parts& parts_;
  const TranslateOptions& options_;
};

std::vector<std::vector<Translation>> Translator::translate(
    std::span<const std::string> sentences,
    const TranslateOptions& options) const {
  check(options, config().languages);
  std::vector<Source> sources =
      encode(sentences, *this, parts_->tokens, options.to);
  std::vector<std::vector<Translation>> results(sentences.size(),
                                                std::vector<Translation>(1));
  // Symbols alone are their own translation.
  for (const Source& source : sources) {
    if (!source.text.pieces.empty()) continue;
    results[source.number].front().text = source.text.head + source.text.tail;
  }
  std::erase_if(sources, [](const Source& s) { return s.text.pieces.empty(); });
  const std::vector<Batch> batches = batches_of(sources, options);
  const Search search(*this, options);
  const auto run = [&](const Batch& batch, Threads threads) {
    const auto found = search(batch, threads);
    for (std::size_t i = 0; i < batch.sources.size(); ++i) {
      const Source& source = batch.sources[i];
      std::vector<Translation>& result = results[source.number];
      result.clear();
      for (const Hypothesis& best : found[i]) {
        if (std::ssize(result) == options.nbest) break;
        result.push_back(search.translation(source, best));
      }
    }
  };
  // Nothing is shared between batches, so that threads with one each never
  // wait. A single one has all threads.
  if (batches.size() == 1) {
    run(batches.front(), options.threads);
  } else {
    parallel_for(options.threads, std::ssize(batches), [&](std::int64_t i) {
      run(batches[static_cast<std::size_t>(i)], {.count = 1});
    });
  }
  return results;
}

TranslationTrace Translator::trace(const std::string& sentence,
                                   const TranslateOptions& options) const {
  check(options, config().languages);
  const std::vector<Source> sources =
      encode({&sentence, 1}, *this, parts_->tokens, options.to);
  require(!sources.empty(), "Translator::trace",
          "the sentence must have a word; it is blank");
  const Source& source = sources.front();
  if (source.text.pieces.empty()) {
    return {.text = source.text.head + source.text.tail};
  }
  const Search search(*this, options);
  const Hypothesis best =
      search({sources, !source.text.parts.empty()}, options.threads)
          .front()
          .front();

  // Each step read what the one before it wrote.
  std::vector<std::int32_t> said = best.tokens;
  if (best.ended) said.push_back(parts_->tokens.end);
  std::vector<std::int32_t> read = said;
  read.insert(read.begin(), parts_->tokens.begin);
  read.pop_back();
  return {search.text(source, best), written(tokenizer(), source.pieces),
          written(target_tokenizer(), read), written(target_tokenizer(), said),
          parts_->decoder.trace(source.pieces, read, options.threads)};
}

}  // namespace regard::tasks
