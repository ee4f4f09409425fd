// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace regard::tasks {

struct SampleFile {
  std::string name;
  std::string text;  // the bytes
};

// Tasks that there is a sample for.
std::vector<std::string> sample_tasks();

// Data that a small model learns in two minutes: files in the format of the
// task (train, valid and test; of recommend, log.tsv; of caption and video, the
// pictures and clips too), and README.md with the commands that train and
// score. They are made up by rules, ours and free, and are a function of the
// task and the seed. Of texts, none of one file is in another. Throws
// InvalidArgument for a task that has none.
std::vector<SampleFile> make_sample(const std::string& task,
                                    std::uint64_t seed);

// ListOps (Nangia and Bowman, 2018) as Long Range Arena has it (Tay et al.,
// 2021): long nested lists that come to a digit. What make_sample("listops",
// seed) gives is the size of the original, which no small model learns in two
// minutes.
struct ListOpsOptions {
  std::uint64_t seed = 1;
  std::int64_t train = 96000;
  std::int64_t others = 2000;  // of each, validation and test
  std::int64_t min_length = 500;
  std::int64_t max_length =
      2000;              // tokens, whether brackets are written or not
  bool brackets = true;  // that close a list
};
std::vector<SampleFile> make_list_ops(const ListOpsOptions& options);

// The log of make_sample("recommend", seed) in any size. A reader has 12 lines
// on average, a genre 24 books.
struct SeriesOptions {
  std::uint64_t seed = 1;
  std::int64_t readers = 2000;
  std::int64_t genres = 4;
};
// Part by part: each part is a thousand lines or more. Lines are in order of
// time within each 100,000 readers. Throws InvalidArgument for sizes that are
// not positive.
void write_series(const SeriesOptions& options,
                  const std::function<void(std::string_view)>& write);

}  // namespace regard::tasks
