// SPDX-License-Identifier: Apache-2.0
// The chat templates that are known, told by the marks that they contain.
#include <algorithm>
#include <optional>
#include <utility>

#include "regard/core/error.h"
#include "regard/tasks/chat.h"

namespace regard::tasks {
namespace {

using Role = ChatMessage::Role;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr const char* kBlanks = " \t\n\r\v\f";

std::string end_trimmed(const std::string& text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}
std::string trimmed(const std::string& text) {
  const std::string rest = end_trimmed(text);
  return rest.substr(std::min(rest.find_first_not_of(kBlanks), rest.size()));
}

// The system message that a ChatML template has where the chat has none: what
// stands in one string literal between the marks of a system turn.
std::string default_system(std::string_view jinja) {
  constexpr std::string_view kStart = "<|im_start|>system\\n";
  constexpr std::string_view kEnd = "<|im_end|>";
  for (std::size_t at = jinja.find(kStart); at != std::string_view::npos;
       at = jinja.find(kStart, at + 1)) {
    const std::string_view rest = jinja.substr(at + kStart.size());
    std::string text;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (rest.substr(i).starts_with(kEnd)) return text;
      if (rest[i] == '\'' || rest[i] == '"') break;  // the literal ends
      if (rest[i] == '\\' && i + 1 < rest.size()) {
        ++i;
        text += rest[i] == 'n' ? '\n' : rest[i];
      } else {
        text += rest[i];
      }
    }
  }
  return "";
}

// Where a template puts what the system says.
enum class System { kOwnTurn, kInFirst, kInLast, kRefused };

}  // namespace

struct ChatTemplate::Format {
  struct Turn {
    std::string before, after;
  };

  std::string name;
  std::string start{};  // of the chat
  Turn user, assistant;
  std::string answer{};       // where the model's answer begins
  std::string end_of_turn{};  // what the model ends it with
  // Blanks around what each says go away.
  struct Trims {
    bool system = false, user = false, assistant = false;
  };
  Trims trims{};
  bool trims_together = false;   // the system's text and the user's
  bool strips_thoughts = false;  // of answers: all up to </think>
  System system = System::kOwnTurn;
  Turn system_turn{};              // or around it in the user's turn
  std::string system_otherwise{};  // where the chat has none
  bool always_has_system = false;  // even an empty one

  std::string text(const ChatMessage& message) const;
};

std::string ChatTemplate::Format::text(const ChatMessage& message) const {
  std::string text = message.text;
  constexpr std::string_view kThought = "</think>";
  if (strips_thoughts && message.role == Role::kAssistant) {
    const std::size_t end = text.rfind(kThought);
    if (end != std::string::npos) {
      text = text.substr(end + kThought.size());
      text.erase(0, text.find_first_not_of('\n'));
    }
  }
  const bool trim = message.role == Role::kSystem ? trims.system
                    : message.role == Role::kUser ? trims.user
                                                  : trims.assistant;
  return trim ? trimmed(text) : text;
}

namespace {

// Formats are made here, one function each: nothing where the marks are not
// there.
template <typename Format>
class Recognizer {
 public:
  Recognizer(std::string_view jinja, std::string begin, std::string end)
      : jinja_(jinja), begin_(std::move(begin)), end_(std::move(end)) {
    if (has(jinja_, "bos_token")) start_ = begin_;
  }

  std::optional<Format> any() const {
    for (const auto make :
         {&Recognizer::chatml, &Recognizer::llama3, &Recognizer::gemma,
          &Recognizer::llama2, &Recognizer::mistral, &Recognizer::phi3,
          &Recognizer::zephyr}) {
      if (auto format = (this->*make)()) return format;
    }
    return std::nullopt;
  }

 private:
  bool trims() const { return has(jinja_, "| trim") || has(jinja_, "|trim"); }

  std::optional<Format> chatml() const {
    // Another mark, or thoughts that the prompt begins: relatives, not this.
    if (!has(jinja_, "<|im_start|>") || !has(jinja_, "<|im_end|>") ||
        has(jinja_, "<|im_sep|>") ||
        has(jinja_, "<|im_start|>assistant\\n<think>")) {
      return std::nullopt;
    }
    Format f{.name = "ChatML",
             .start = start_,
             .user = {"<|im_start|>user\n", "<|im_end|>\n"},
             .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"},
             .answer = "<|im_start|>assistant\n",
             .end_of_turn = "<|im_end|>",
             .trims = {trims(), trims(), trims()},
             .strips_thoughts = has(jinja_, "</think>"),
             .system_turn = {"<|im_start|>system\n", "<|im_end|>\n"},
             .system_otherwise = default_system(jinja_)};
    return f;
  }

  std::optional<Format> llama3() const {
    if (!has(jinja_, "<|start_header_id|>") || !has(jinja_, "<|eot_id|>")) {
      return std::nullopt;
    }
    const auto turn = [](const char* role) {
      return typename Format::Turn{
          std::string("<|start_header_id|>") + role + "<|end_header_id|>\n\n",
          "<|eot_id|>"};
    };
    Format f{.name = "Llama 3",
             .start = start_,
             .user = turn("user"),
             .assistant = turn("assistant"),
             .answer = turn("assistant").before,
             .end_of_turn = "<|eot_id|>",
             .trims = {true, true, true},
             .system_turn = turn("system")};
    // From 3.1 on every chat begins with what the model may know of time; the
    // date is the one that the template has where it is not told another.
    if (has(jinja_, "Cutting Knowledge Date")) {
      f.system_turn.before +=
          "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul "
          "2024\n\n";
      f.always_has_system = true;
    }
    return f;
  }

  std::optional<Format> gemma() const {
    if (!has(jinja_, "<start_of_turn>")) return std::nullopt;
    Format f{.name = "Gemma",
             .start = start_,
             .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
             .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
             .answer = "<start_of_turn>model\n",
             .end_of_turn = "<end_of_turn>",
             .trims = {.user = true, .assistant = true},
             .system = System::kRefused};
    if (has(jinja_, "first_user_prefix")) {
      f.system = System::kInFirst;
      f.system_turn = {"", "\n\n"};
    }
    return f;
  }

  std::optional<Format> llama2() const {
    if (!has(jinja_, "[INST]") || !has(jinja_, "<<SYS>>")) return std::nullopt;
    Format f{.name = "Llama 2",
             .user = {begin_ + "[INST] ", " [/INST]"},
             .assistant = {" ", " " + end_},
             .end_of_turn = end_,
             .trims = {.user = true, .assistant = true},
             .trims_together = true,
             .system = System::kInFirst,
             .system_turn = {"<<SYS>>\n", "\n<</SYS>>\n\n"}};
    return f;
  }

  std::optional<Format> mistral() const {
    if (!has(jinja_, "[INST]")) return std::nullopt;
    // Its versions differ in blanks around the marks.
    const char* before = has(jinja_, "[INST] ") ? "[INST] " : "[INST]";
    const char* after = has(jinja_, " [/INST]") ? " [/INST]" : "[/INST]";
    const bool blank =
        has(jinja_, "' ' + message") || has(jinja_, "\" \" + message");
    Format f{.name = "Mistral",
             .start = start_,
             .user = {before, after},
             .assistant = {blank ? " " : "",
                           has(jinja_, "eos_token + ' '") ? end_ + " " : end_},
             .end_of_turn = end_,
             .trims = {.assistant = trims()},
             .system = System::kRefused};
    if (has(jinja_, "system_message")) {
      f.system = has(jinja_, "loop.last") ? System::kInLast : System::kInFirst;
      f.system_turn = {"", "\n\n"};
    }
    return f;
  }

  std::optional<Format> phi3() const {
    if (!has(jinja_, "<|end|>") || !has(jinja_, "<|assistant|>") ||
        !has(jinja_, "<|user|>") || !has(jinja_, "\\n")) {
      return std::nullopt;
    }
    Format f{.name = "Phi-3",
             .start = start_,
             .user = {"<|user|>\n", "<|end|>\n"},
             .assistant = {"<|assistant|>\n", "<|end|>\n"},
             .answer = "<|assistant|>\n",
             .end_of_turn = "<|end|>",
             .system_turn = {"<|system|>\n", "<|end|>\n"}};
    if (!has(jinja_, "<|system|>")) f.system = System::kRefused;
    return f;
  }

  std::optional<Format> zephyr() const {
    if (!has(jinja_, "<|user|>") || !has(jinja_, "<|assistant|>") ||
        !has(jinja_, "eos_token") || has(jinja_, "<|end|>")) {
      return std::nullopt;
    }
    Format f{.name = "Zephyr",
             .start = start_,
             .user = {"<|user|>\n", end_ + "\n"},
             .assistant = {"<|assistant|>\n", end_ + "\n"},
             .answer = "<|assistant|>\n",
             .end_of_turn = end_,
             .system_turn = {"<|system|>\n", end_ + "\n"}};
    return f;
  }

  std::string_view jinja_;
  std::string begin_, end_;
  std::string start_;  // empty where the template does not write it
};

}  // namespace

ChatTemplate::ChatTemplate(std::string_view jinja, std::string begin,
                           std::string end) {
  constexpr const char* kWhere = "ChatTemplate";
  if (jinja.empty()) {
    throw_parse_error(kWhere,
                      "the model has no chat template: it may not be made for "
                      "chats");
  }
  auto format =
      Recognizer<Format>(jinja, std::move(begin), std::move(end)).any();
  if (!format) {
    throw_parse_error(kWhere,
                      "the chat template is none of ChatML, Llama 2, Llama 3, "
                      "Mistral, Gemma, Phi-3 and Zephyr:\n",
                      jinja);
  }
  format_ = std::make_unique<const Format>(std::move(*format));
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

const std::string& ChatTemplate::name() const { return format_->name; }
const std::string& ChatTemplate::end_of_turn() const {
  return format_->end_of_turn;
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages) const {
  std::string chat;
  for (const Part& part : parts(messages)) chat += part.text;
  return chat;
}

std::vector<ChatTemplate::Part> ChatTemplate::parts(
    std::span<const ChatMessage> messages) const {
  constexpr const char* kWhere = "ChatTemplate::render";
  const Format& f = *format_;
  std::optional<std::string> system;
  if (!messages.empty() && messages[0].role == Role::kSystem) {
    require(f.system != System::kRefused, kWhere, "the template ", f.name,
            " of this model has no system message");
    system = f.text(messages[0]);
    messages = messages.subspan(1);
  } else if (f.always_has_system || !f.system_otherwise.empty()) {
    system = f.system_otherwise;
  }
  require(messages.size() % 2 == 1, kWhere,
          "a chat ends with what the user says; it has ", messages.size(),
          " messages");
  std::vector<Part> parts = {{f.start}};
  const auto add = [&](const Format::Turn& turn, const std::string& text) {
    parts.push_back({turn.before});
    parts.push_back({text, true});
    parts.push_back({turn.after});
  };
  if (system && f.system == System::kOwnTurn) add(f.system_turn, *system);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool user = i % 2 == 0;
    require(messages[i].role == (user ? Role::kUser : Role::kAssistant), kWhere,
            "the user and the model take turns; message ", i, " is not the ",
            user ? "user's" : "model's");
    const auto& turn = user ? f.user : f.assistant;
    const bool has_system =
        system && ((f.system == System::kInFirst && i == 0) ||
                   (f.system == System::kInLast && i + 1 == messages.size()));
    parts.push_back({turn.before});
    if (has_system) add(f.system_turn, *system);
    // Llama 2 trims both together.
    const bool together = has_system && f.trims_together;
    add({"", turn.after},
        together ? end_trimmed(messages[i].text) : f.text(messages[i]));
  }
  parts.push_back({f.answer});
  return parts;
}

}  // namespace regard::tasks
