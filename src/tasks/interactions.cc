// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/interactions.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/text/table.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "read_interactions";

// Numbers for names, in the order in which they come.
class Names {
 public:
  std::int32_t number(const std::string& name) {
    const auto [at, is_new] =
        numbers_.emplace(name, static_cast<std::int32_t>(names_.size()));
    if (is_new) names_.push_back(name);
    return at->second;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::vector<std::string> names_;
};

bool is_date(std::string_view text) {
  constexpr std::string_view kDate = "0000-00-00";
  if (text.size() < kDate.size()) return false;
  for (std::size_t i = 0; i < kDate.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kDate[i] == '0' ? !digit : text[i] != '-') return false;
  }
  return true;
}

bool read_number(const std::string& text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && value == value;
}

// The rows of a table in order of time.
std::vector<std::size_t> order_of(const text::Table& table,
                                  const std::vector<std::string>* times,
                                  const std::filesystem::path& path) {
  std::vector<std::size_t> order(table.lines.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (times == nullptr || times->empty()) return order;
  const bool dates = is_date(times->front());
  std::vector<double> numbers(times->size());
  for (std::size_t i = 0; i < times->size(); ++i) {
    const std::string& time = (*times)[i];
    if (dates ? is_date(time) : read_number(time, numbers[i])) continue;
    throw_parse_error(kWhere, "'", path.string(), "', line ", table.lines[i],
                      ": a time must be a number, or a date with the year "
                      "first, the same in all lines; got ",
                      io::in_quotes(time));
  }
  std::stable_sort(
      order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return dates ? (*times)[a] < (*times)[b] : numbers[a] < numbers[b];
      });
  return order;
}

text::Table read_columns(const std::filesystem::path& path,
                         const InteractionFormat& format) {
  if (format.has_header) {
    std::vector<std::string> columns = {format.user, format.item};
    if (!format.time.empty()) columns.push_back(format.time);
    return text::read_table(path, columns);
  }
  text::Table table = text::read_table_without_header(path);
  if (table.columns.size() != 2 && table.columns.size() != 3 &&
      table.size() > 0) {
    throw_parse_error(kWhere, "'", path.string(), "', line ",
                      table.lines.front(),
                      ": there must be a user and an item, and a time or "
                      "none; there are ",
                      table.columns.size(), " fields");
  }
  table.columns.resize(std::max<std::size_t>(table.columns.size(), 2));
  return table;
}

// Gives the items new numbers: those taken most often in what is learnt from
// come first, then by name. Items that nobody took are left out.
void sort_items(Interactions& data) {
  std::vector<std::int64_t> counts(data.items.size());
  std::vector<bool> taken(data.items.size());
  for (const auto& history : data.histories) {
    const auto learnt =
        static_cast<std::size_t>(training_part(std::ssize(history)));
    for (std::size_t i = 0; i < history.size(); ++i) {
      const auto item = static_cast<std::size_t>(history[i]);
      taken[item] = true;
      if (i < learnt) ++counts[item];
    }
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b]
                                  : data.items[a] < data.items[b];
  });
  std::vector<std::int32_t> numbers(data.items.size());
  std::vector<std::string> items;
  data.counts.clear();
  for (const std::size_t item : order) {
    numbers[item] = static_cast<std::int32_t>(items.size());
    items.push_back(std::move(data.items[item]));
    data.counts.push_back(counts[item]);
  }
  data.items = std::move(items);
  for (auto& history : data.histories) {
    for (std::int32_t& item : history) {
      item = numbers[static_cast<std::size_t>(item)];
    }
  }
}

}  // namespace

std::int64_t training_part(std::int64_t length) {
  return length < 3 ? length : length - 2;
}

Interactions read_interactions(const std::filesystem::path& path,
                               const InteractionFormat& format) {
  const text::Table table = read_columns(path, format);
  Names users, items;
  std::vector<std::int32_t> user_of, item_of;
  for (std::size_t i = 0; i < table.lines.size(); ++i) {
    user_of.push_back(users.number(table.columns[0][i]));
    item_of.push_back(items.number(table.columns[1][i]));
  }
  std::vector<std::vector<std::int32_t>> histories(users.names().size());
  for (const std::size_t i :
       order_of(table, table.columns.size() > 2 ? &table.columns[2] : nullptr,
                path)) {
    histories[static_cast<std::size_t>(user_of[i])].push_back(item_of[i]);
  }
  Interactions data;
  data.items = items.names();
  for (std::size_t u = 0; u < histories.size(); ++u) {
    if (std::ssize(histories[u]) < format.min_interactions) {
      ++data.users_left_out;
      continue;
    }
    data.users.push_back(users.names()[u]);
    data.histories.push_back(std::move(histories[u]));
  }
  sort_items(data);
  return data;
}

std::vector<NextItem> held_out_items(const Interactions& interactions,
                                     HeldOut which) {
  const std::ptrdiff_t cut = which == HeldOut::kTest ? 1 : 2;
  std::vector<NextItem> out;
  for (std::size_t u = 0; u < interactions.histories.size(); ++u) {
    const auto& history = interactions.histories[u];
    if (history.size() < 3) continue;
    out.push_back({static_cast<std::int64_t>(u),
                   {history.begin(), history.end() - cut},
                   *(history.end() - cut)});
  }
  return out;
}

std::string interactions_to_tsv(const Interactions& interactions) {
  for (const auto* names : {&interactions.users, &interactions.items}) {
    for (const std::string& name : *names) {
      require(name.find_first_of("\t\r\n") == std::string::npos,
              "interactions_to_tsv",
              "the name of a user or an item must hold no tab and no line end;"
              " got ",
              io::in_quotes(name));
    }
  }
  std::string text = "user\titem\n";
  for (std::size_t u = 0; u < interactions.histories.size(); ++u) {
    for (const std::int32_t item : interactions.histories[u]) {
      text += interactions.users[u];
      text += '\t';
      text += interactions.items[static_cast<std::size_t>(item)];
      text += '\n';
    }
  }
  return text;
}

}  // namespace regard::tasks
