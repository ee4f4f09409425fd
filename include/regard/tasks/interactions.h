// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/tasks/histories.h"

namespace regard::tasks {

// Who took what, in order of time. Users and items are numbers here, and have
// names.
struct Interactions {
  std::vector<std::string> users;
  std::vector<std::string> items;  // those taken most often come first
  // For each user, items in order of time; one may come more than once.
  Histories histories;
  // How often each item is taken in what is learnt from (training_part).
  std::vector<std::int64_t> counts;
  std::int64_t users_left_out = 0;
};

// How a log is read. Names of columns are those of a table with a header
// (regard/text/table.h).
struct InteractionFormat {
  std::string user = "user";
  std::string item = "item";
  std::string time = "time";  // empty: the lines are in order of time
  // Without a header (text::read_table_without_header) lines are "user item"
  // in order of time, or "user item time"; the names above mean nothing.
  bool has_header = true;
  std::int64_t min_interactions = 1;  // users with fewer are left out
  // A folder for files that are gone when nobody reads them any more. With it,
  // memory holds the names of users and items and a few numbers for each, and
  // not what was taken, however much it is; without it, all is in memory.
  std::filesystem::path scratch = {};
};

// Reads a log. Times are numbers, or dates with the year first, the same for
// all: 2024-05-31, 2024-05-31 08:15, 2024-05-31T08:15:00.25+02:00, where one
// without an offset is in UTC. Lines of one time stay in their order. Users
// come in the order of the file, items by how often they are in what is learnt
// from, then by name. Throws as read_table() does, and ParseError, with its
// line, for a time that is neither. The log is read line by line and never held
// as text.
Interactions read_interactions(const std::filesystem::path& path,
                               const InteractionFormat& format = {});

// What a user's history is for. The last item is the test and the one before it
// the validation; all items of a user with fewer than three are training data.
enum class HeldOut { kValidation, kTest };

// How many items of a history are training data.
std::int64_t training_part(std::int64_t length);

// What came before an item that was held out, and the item: a question for a
// model, and its answer. Borrows the history.
struct NextItem {
  std::int64_t user = 0;
  ItemList history;
  std::int32_t item = 0;
};
std::vector<NextItem> held_out_items(const Interactions& interactions,
                                     HeldOut which);

// A log in order of time, as read_interactions() reads it with no time, part
// by part. Throws InvalidArgument for a name that does not fit into a line.
void write_interactions(const Interactions& interactions,
                        const std::function<void(std::string_view)>& write);

}  // namespace regard::tasks
