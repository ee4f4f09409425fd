// SPDX-License-Identifier: Apache-2.0
// Readers of book series. Each has a taste, which is a genre of three series,
// and reads two of them at a time, volume after volume; now and then comes a
// single book that everybody reads. So what comes next is told by where a
// reader stands in two series, and not by what is popular.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "regard/core/error.h"
#include "tasks/samples.h"

namespace regard::tasks {
namespace {

constexpr std::int64_t kNamedGenres = 4;
constexpr std::int64_t kSeriesOfGenre = 3;
constexpr std::int64_t kVolumes = 8;
constexpr std::int64_t kDay = 86400;
constexpr std::int64_t kFirstDay = 1700006400;  // 2023-11-15, in seconds

constexpr std::array<std::array<const char*, kSeriesOfGenre>, kNamedGenres>
    kSeries = {{{"Harbour", "Lighthouse", "Tide"},
                {"Alibi", "Verdict", "Witness"},
                {"Orbit", "Comet", "Nebula"},
                {"Saffron", "Orchard", "Vineyard"}}};
constexpr std::array kSingles = {"The Bicycle",    "Seven Letters",
                                 "Winter Light",   "A Small Town",
                                 "The Clockmaker", "Paper Birds"};

struct Line {
  std::int64_t time = 0;
  std::string user, item;
};

std::string volume(std::int64_t genre, std::int64_t series,
                   std::int64_t number) {
  std::string name = kSeries[static_cast<std::size_t>(genre % kNamedGenres)]
                            [static_cast<std::size_t>(series)];
  // Further genres have the same names once more: Harbour-2.
  if (genre >= kNamedGenres) {
    name += "-" + std::to_string(genre / kNamedGenres + 1);
  }
  return name + " " + std::to_string(number + 1);
}

void read_books(Random& random, const std::string& user, std::int64_t genres,
                std::vector<Line>& lines) {
  const std::int64_t genre = random.below(genres);
  // Where the reader stands in each series; the one that is not read yet.
  std::array<std::int64_t, kSeriesOfGenre> next{};
  std::int64_t unread = random.below(kSeriesOfGenre);

  std::int64_t time = kFirstDay + random.below(200 * kDay);
  const std::int64_t count = 8 + random.below(9);
  for (std::int64_t i = 0; i < count; ++i) {
    time += kDay + random.below(9 * kDay);
    if (random.below(12) == 0) {
      lines.push_back({time, user, std::string(any_of(random, kSingles))});
      continue;
    }
    std::int64_t series = random.below(kSeriesOfGenre);
    while (series == unread ||
           next[static_cast<std::size_t>(series)] == kVolumes) {
      series = random.below(kSeriesOfGenre);
    }
    std::int64_t& at = next[static_cast<std::size_t>(series)];
    lines.push_back({time, user, volume(genre, series, at)});
    // Whoever is through with a series begins the one that was left.
    if (++at == kVolumes) unread = -1;
  }
}

constexpr const char* kReadme =
    R"(# Readers of book series: a sample for `regard train recommend`

Made up by the rules of `regard sample recommend`: 2,000 readers, each of whom
likes one genre of three series and reads two of them at a time, volume after
volume. Once in a while comes a book that everybody reads. Free to use for
anything. log.tsv has the columns user, item and time (seconds since 1970).

    regard train recommend --interactions log.tsv --out model
    regard recommend --model model --score
    regard recommend --model model --user reader-0007
    regard recommend --model model --why --history "Harbour 1, Tide 1, Tide 2"
)";

}  // namespace

void write_series(const SeriesOptions& options,
                  const std::function<void(std::string_view)>& write) {
  require(options.readers > 0 && options.genres > 0, "write_series",
          "there must be readers and genres; there are ", options.readers,
          " and ", options.genres);
  constexpr std::int64_t kTogether = 100000;
  Random random(options.seed);
  std::vector<Line> lines;
  write("user\titem\ttime\n");
  for (std::int64_t reader = 1; reader <= options.readers; ++reader) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "reader-%04lld",
                  static_cast<long long>(reader));
    read_books(random, name.data(), options.genres, lines);
    if (reader % kTogether != 0 && reader != options.readers) continue;
    std::stable_sort(
        lines.begin(), lines.end(),
        [](const Line& a, const Line& b) { return a.time < b.time; });
    std::string log;
    for (const Line& line : lines) {
      log += line.user + "\t" + line.item + "\t" + std::to_string(line.time) +
             "\n";
    }
    write(log);
    lines.clear();
  }
}

std::vector<SampleFile> sample_series(std::uint64_t seed) {
  std::string log;
  write_series({.seed = seed}, [&](std::string_view part) { log += part; });
  return {{"log.tsv", std::move(log)}, {"README.md", kReadme}};
}

}  // namespace regard::tasks
