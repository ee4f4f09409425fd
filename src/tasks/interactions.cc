// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/interactions.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/text/table.h"
#include "tasks/scratch_file.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "read_interactions";

// Numbers for names, in the order in which they come.
class Names {
 public:
  std::int32_t number(std::string& name) {
    const auto [at, is_new] = numbers_.emplace(
        std::move(name), static_cast<std::int32_t>(names_.size()));
    if (is_new) names_.push_back(&at->first);
    require(names_.size() < std::numeric_limits<std::int32_t>::max(), kWhere,
            "there are too many names");
    return at->second;
  }
  std::size_t size() const { return names_.size(); }
  const std::string& name(std::size_t number) const { return *names_[number]; }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::vector<const std::string*> names_;  // its keys stay where they are
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A date, which may have a time of day behind it, and that an offset from UTC:
// 2024-05-31, 2024-05-31 08:15, 2024-05-31T08:15:00.25+02:00.
class Date {
 public:
  explicit Date(std::string_view text) : rest_(text) {}

  // Its microseconds since 1970, UTC where it names no offset; none where it is
  // something else.
  std::optional<std::int64_t> time() {
    int year = 0, month = 0, day = 0;
    if (!take_number(4, year) || !take('-') || !take_number(2, month) ||
        !take('-') || !take_number(2, day)) {
      return std::nullopt;
    }
    const std::chrono::year_month_day date =
        std::chrono::year(year) / month / day;
    std::int64_t micros = 0;
    const bool understood =
        date.ok() && (rest_.empty() || take_time_of_day(micros));
    if (!understood || !rest_.empty()) return std::nullopt;
    const std::int64_t days =
        std::chrono::sys_days(date).time_since_epoch().count();
    return days * 24 * kHour + micros;
  }

 private:
  static constexpr std::int64_t kSecond = 1'000'000;
  static constexpr std::int64_t kMinute = 60 * kSecond;
  static constexpr std::int64_t kHour = 60 * kMinute;

  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool take_number(std::size_t digits, int& number) {
    if (rest_.size() < digits) return false;
    number = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      if (!is_digit(rest_[i])) return false;
      number = 10 * number + (rest_[i] - '0');
    }
    rest_.remove_prefix(digits);
    return true;
  }

  bool take_time_of_day(std::int64_t& micros) {
    int hour = 0, minute = 0, second = 0;
    if (!take('T') && !take(' ')) return false;
    if (!take_number(2, hour) || !take(':') || !take_number(2, minute)) {
      return false;
    }
    if (take(':') && !take_number(2, second)) return false;
    if (hour > 23 || minute > 59 || second > 60) return false;
    micros = hour * kHour + minute * kMinute + second * kSecond;
    return take_fraction(micros) && take_offset(micros);
  }

  bool take_fraction(std::int64_t& micros) {
    if (!take('.')) return true;
    if (rest_.empty() || !is_digit(rest_.front())) return false;
    for (std::int64_t unit = kSecond / 10;
         !rest_.empty() && is_digit(rest_.front()); unit /= 10) {
      micros += unit * (rest_.front() - '0');
      rest_.remove_prefix(1);
    }
    return true;
  }

  // "Z", " UTC", "+02:00", "-0500".
  bool take_offset(std::int64_t& micros) {
    take(' ');
    if (rest_.empty() || rest_ == "Z" || rest_ == "UTC") {
      rest_ = {};
      return true;
    }
    const bool west = take('-');
    int hours = 0, minutes = 0;
    if ((!west && !take('+')) || !take_number(2, hours)) return false;
    take(':');
    if (!rest_.empty() && !take_number(2, minutes)) return false;
    const std::int64_t offset = hours * kHour + minutes * kMinute;
    micros += west ? offset : -offset;
    return true;
  }

  std::string_view rest_;
};

bool read_number(const std::string& text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && value == value;
}

// A whole number that is larger where the number is; of both zeros the same.
std::int64_t time_of_number(double value) {
  const auto bits = std::bit_cast<std::int64_t>(value + 0.0);
  return bits < 0 ? bits ^ std::numeric_limits<std::int64_t>::max() : bits;
}

// What the times of a log are is told by the first.
class Times {
 public:
  // False for one that is not of the kind of the first.
  bool read(const std::string& text, std::int64_t& time) {
    const std::optional<std::int64_t> of_date = Date(text).time();
    if (!dates_) dates_ = of_date.has_value();
    if (*dates_) {
      time = of_date.value_or(0);
      return of_date.has_value();
    }
    double number = 0;
    if (!read_number(text, number)) return false;
    time = time_of_number(number);
    return true;
  }

 private:
  std::optional<bool> dates_;
};

struct Taken {
  std::int64_t time = 0;
  std::int32_t user = 0;
  std::int32_t item = 0;
};

// What was taken, in the order in which it came, by groups of users. With a
// folder, no more of a group than a block is in memory.
class Log {
 public:
  explicit Log(const std::filesystem::path& folder) {
    if (!folder.empty()) file_.emplace(folder);
  }

  void add(const Taken& one) {
    const auto number = static_cast<std::size_t>(one.user / kUsers);
    if (number >= groups_.size()) groups_.resize(number + 1);
    Group& group = groups_[number];
    group.last.push_back(one);
    if (!file_ || group.last.size() < kBlock) return;
    group.blocks.push_back(file_->size());
    file_->append(std::as_bytes(std::span(group.last)));
    group.last.clear();
  }

  // Each user's, in order of time and then of the lines; users in order.
  // Nothing stays.
  template <typename Visit>
  void visit(const Visit& visit) {
    std::vector<Taken> all;
    for (Group& group : groups_) {
      all.resize(group.blocks.size() * kBlock);
      for (std::size_t b = 0; b < group.blocks.size(); ++b) {
        file_->read(
            group.blocks[b],
            std::as_writable_bytes(std::span(all).subspan(b * kBlock, kBlock)));
      }
      all.insert(all.end(), group.last.begin(), group.last.end());
      group = {};
      std::stable_sort(
          all.begin(), all.end(), [](const Taken& a, const Taken& b) {
            return a.user != b.user ? a.user < b.user : a.time < b.time;
          });
      for (auto begin = all.begin(); begin != all.end();) {
        const auto end = std::find_if(begin, all.end(), [&](const Taken& one) {
          return one.user != begin->user;
        });
        visit(std::span<const Taken>(begin, end));
        begin = end;
      }
    }
  }

 private:
  static constexpr std::int32_t kUsers = 1 << 16;  // of a group
  static constexpr std::size_t kBlock = 4096;

  struct Group {
    std::vector<std::int64_t> blocks;  // where they are in the file
    std::vector<Taken> last;
  };
  std::vector<Group> groups_;
  std::optional<ScratchFile> file_;
};

// Items of users, one after the other; with a folder in a file.
class ItemWriter {
 public:
  explicit ItemWriter(const std::filesystem::path& folder) {
    if (!folder.empty()) file_ = std::make_shared<ScratchFile>(folder);
  }
  void add(std::int32_t item) {
    part_.push_back(item);
    if (file_ && part_.size() == kPart) write();
  }
  void end_list() { offsets_.push_back(written_ + std::ssize(part_)); }
  Histories finish() {
    if (!file_) {
      const auto all =
          std::make_shared<std::vector<std::int32_t>>(std::exchange(part_, {}));
      return {std::move(offsets_), all->data(), all};
    }
    write();
    const std::byte* const items = file_->map().data();
    return {std::move(offsets_), reinterpret_cast<const std::int32_t*>(items),
            file_};
  }

 private:
  static constexpr std::size_t kPart = 1 << 16;

  void write() {
    file_->append(std::as_bytes(std::span(part_)));
    written_ += std::ssize(part_);
    part_.clear();
  }

  std::vector<std::int64_t> offsets_ = {0};
  std::vector<std::int32_t> part_;
  std::int64_t written_ = 0;
  std::shared_ptr<ScratchFile> file_;
};

// Calls add(user, item, time, line) for each line; the time is empty where
// there is none.
template <typename Add>
void visit_log(const std::filesystem::path& path,
               const InteractionFormat& format, const Add& add) {
  std::string none;
  const auto visit = [&](std::span<std::string> row, std::int64_t line) {
    if (row.size() != 2 && row.size() != 3) {
      throw_parse_error(kWhere, "'", path.string(), "', line ", line,
                        ": there must be a user and an item, and a time or "
                        "none; there are ",
                        row.size(), " fields");
    }
    add(row[0], row[1], row.size() == 3 ? row[2] : none, line);
  };
  if (!format.has_header) return text::visit_table_without_header(path, visit);
  std::vector<std::string> columns = {format.user, format.item};
  if (!format.time.empty()) columns.push_back(format.time);
  text::visit_table(path, columns, visit);
}

// The items that somebody took: those taken most often in what is learnt from
// come first, then by name. `numbers` are the old ones in the new order.
void sort_items(const Names& names, const std::vector<bool>& taken,
                const std::vector<std::int64_t>& counts, Interactions& data,
                std::vector<std::int32_t>& new_numbers) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b]
                                  : names.name(a) < names.name(b);
  });
  new_numbers.resize(taken.size());
  for (const std::size_t item : order) {
    new_numbers[item] = static_cast<std::int32_t>(data.items.size());
    data.items.push_back(names.name(item));
    data.counts.push_back(counts[item]);
  }
}

}  // namespace

std::int64_t training_part(std::int64_t length) {
  return length < 3 ? length : length - 2;
}

Interactions read_interactions(const std::filesystem::path& path,
                               const InteractionFormat& format) {
  Names users, items;
  Log log(format.scratch);
  Times times;
  visit_log(path, format,
            [&](std::string& user, std::string& item, const std::string& time,
                std::int64_t line) {
              Taken one;
              if (!time.empty() && !times.read(time, one.time)) {
                throw_parse_error(
                    kWhere, "'", path.string(), "', line ", line,
                    ": a time must be a number, or a date as in 2024-05-31 "
                    "or 2024-05-31T08:15:00Z, the same in all lines; got ",
                    io::in_quotes(time));
              }
              one.user = users.number(user);
              one.item = items.number(item);
              log.add(one);
            });
  Interactions data;
  std::vector<std::int64_t> counts(items.size());
  std::vector<bool> taken(items.size());
  ItemWriter in_order(format.scratch);
  log.visit([&](std::span<const Taken> history) {
    if (std::ssize(history) < format.min_interactions) {
      ++data.users_left_out;
      return;
    }
    const auto user = static_cast<std::size_t>(history.front().user);
    data.users.push_back(users.name(user));
    const std::int64_t learnt = training_part(std::ssize(history));
    for (std::int64_t i = 0; i < std::ssize(history); ++i) {
      const std::int32_t item = history[static_cast<std::size_t>(i)].item;
      taken[static_cast<std::size_t>(item)] = true;
      if (i < learnt) ++counts[static_cast<std::size_t>(item)];
      in_order.add(item);
    }
    in_order.end_list();
  });
  std::vector<std::int32_t> new_numbers;
  sort_items(items, taken, counts, data, new_numbers);
  ItemWriter renumbered(format.scratch);
  for (const ItemList history : in_order.finish()) {
    for (const std::int32_t item : history) {
      renumbered.add(new_numbers[static_cast<std::size_t>(item)]);
    }
    renumbered.end_list();
  }
  data.histories = renumbered.finish();
  return data;
}

std::vector<NextItem> held_out_items(const Interactions& interactions,
                                     HeldOut which) {
  const std::size_t cut = which == HeldOut::kTest ? 1 : 2;
  std::vector<NextItem> out;
  for (std::size_t u = 0; u < interactions.histories.size(); ++u) {
    const ItemList history = interactions.histories[u];
    if (history.size() < 3) continue;
    const std::size_t before = history.size() - cut;
    out.push_back(
        {static_cast<std::int64_t>(u), history.first(before), history[before]});
  }
  return out;
}

void write_interactions(const Interactions& interactions,
                        const std::function<void(std::string_view)>& write) {
  for (const auto* names : {&interactions.users, &interactions.items}) {
    for (const std::string& name : *names) {
      require(name.find_first_of("\t\r\n") == std::string::npos,
              "write_interactions",
              "the name of a user or an item must hold no tab and no line end;"
              " got ",
              io::in_quotes(name));
    }
  }
  constexpr std::size_t kPart = 1 << 16;
  std::string text = "user\titem\n";
  for (std::size_t u = 0; u < interactions.histories.size(); ++u) {
    for (const std::int32_t item : interactions.histories[u]) {
      text += interactions.users[u];
      text += '\t';
      text += interactions.items[static_cast<std::size_t>(item)];
      text += '\n';
    }
    if (text.size() < kPart) continue;
    write(text);
    text.clear();
  }
  write(text);
}

}  // namespace regard::tasks
