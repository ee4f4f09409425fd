// SPDX-License-Identifier: Apache-2.0
#include "text/field.h"

#include <limits>

#include "json/json.h"

namespace regard::text {

bool Field::is_null() const { return value_->is_null(); }
bool Field::is_text() const { return value_->is_string(); }
bool Field::is_object() const { return value_->is_object(); }
bool Field::is_array() const { return value_->is_array(); }
std::size_t Field::size() const { return value_->size(); }

bool Field::has(const char* key) const {
  if (!value_->is_object()) return false;
  const Json* const found = value_->find(key);
  return found != nullptr && !found->is_null();
}

Field Field::operator[](const char* key) const {
  if (!value_->is_object()) expect("an object");
  const Json* const found = value_->find(key);
  if (found == nullptr) fail("has no field ", io::in_quotes(key));
  return {*found, where_, path_.empty() ? key : path_ + "." + key};
}

std::vector<std::string> Field::keys() const {
  if (!value_->is_object()) expect("an object");
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_->items()) keys.push_back(key);
  return keys;
}

Field Field::element(std::size_t i) const {
  if (!value_->is_array() || i >= value_->size()) {
    expect("an array with more elements");
  }
  return {(*value_)[i], where_, path_ + "[" + std::to_string(i) + "]"};
}

const std::string& Field::text() const {
  if (!value_->is_string()) expect("a text");
  return value_->text();
}

bool Field::flag() const {
  if (!value_->is_boolean()) expect("true or false");
  return value_->get<bool>();
}

double Field::real() const {
  if (!value_->is_number()) expect("a number");
  return value_->get<double>();
}

std::int32_t Field::id() const {
  if (value_->is_integer()) {
    const auto id = value_->get<std::int64_t>();
    if (id >= 0 && id < std::numeric_limits<std::int32_t>::max()) {
      return static_cast<std::int32_t>(id);
    }
  }
  expect("the number of a piece");
}

std::int64_t Field::count() const {
  if (!value_->is_integer() || value_->get<std::int64_t>() < 0) {
    expect("a number that is not negative");
  }
  return value_->get<std::int64_t>();
}

void Field::expect(const char* what) const {
  std::string given;
  if (value_->is_array() || value_->is_object()) {
    given = value_->is_array() ? "an array" : "an object";
  } else {
    given = value_->dump({.ascii = true, .replace_invalid = true});
    if (given.size() > 60) given = given.substr(0, 60) + "...";
  }
  fail("must be ", what, "; it is ", given);
}

}  // namespace regard::text
