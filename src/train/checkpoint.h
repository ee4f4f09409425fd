// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "regard/tensor/tensor.h"
#include "regard/train/adam.h"

namespace regard::train {

// Where a run stands. All of it is in a checkpoint.
struct Position {
  std::int64_t update = 0;  // done
  std::int64_t epoch = 0;   // of the next batch, from 0
  std::int64_t batch = 0;   // the next one of its epoch
  double best = std::numeric_limits<double>::infinity();  // validation loss
  std::int64_t worse = 0;  // milestones since the best
};

// All that the weights depend on, by names in plain words.
using Settings = std::map<std::string, std::string>;

// "; width was 128, now 256" for each that differs, or other words for the two.
std::string differences(const Settings& before, const Settings& now,
                        const char* was = "was", const char* is = "now");

// Keeps every other training out of a folder while it lives, also those of
// other processes. Throws IoError where one is there already.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int folder_;
};

std::filesystem::path checkpoint_path(const std::filesystem::path& folder);

// Replaces the checkpoint in one step.
void save_checkpoint(const std::filesystem::path& folder,
                     const Position& position, const StateDict& parameters,
                     const Adam& adam, const Settings& settings);

// Puts everything back. Throws ParseError for a file that is broken, and
// InvalidArgument for one of another model or other settings, of which it names
// all; then nothing has changed.
Position load_checkpoint(const std::filesystem::path& folder,
                         const Settings& settings, StateDict& parameters,
                         Adam& adam);

// The weights at milestones, by update.
void save_milestone(const std::filesystem::path& folder, std::int64_t update,
                    const StateDict& parameters);
std::vector<std::int64_t> list_milestones(const std::filesystem::path& folder);
void remove_milestone(const std::filesystem::path& folder, std::int64_t update);
// What a crash in the middle of a save has left behind.
void remove_unfinished_files(const std::filesystem::path& folder);
// The mean of some, in double, in order of the updates.
StateDict average_milestones(const std::filesystem::path& folder,
                             const std::vector<std::int64_t>& updates);

}  // namespace regard::train
