// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/chat.h"

#include <algorithm>
#include <utility>

#include "regard/core/error.h"
#include "regard/core/interrupt.h"
#include "tasks/next_token.h"

namespace regard::tasks {
namespace {

using Role = ChatMessage::Role;
using Tokens = std::vector<std::int32_t>;

std::string piece_of(const text::Tokenizer& tokenizer, std::int32_t id) {
  return id < 0 ? "" : tokenizer.piece(id);
}

}  // namespace

struct Chat::Memory {
  Memory(const LoadedModel& loaded_, const ChatOptions& options_)
      : loaded(&loaded_),
        options(options_),
        chat_template(
            loaded_.chat_template,
            piece_of(*loaded_.tokenizer, loaded_.tokenizer->special().begin),
            piece_of(*loaded_.tokenizer, loaded_.tokenizer->special().end)),
        state(loaded_.model, {.threads = options_.threads}) {
    const std::int32_t end =
        loaded_.tokenizer->id_of(chat_template.end_of_turn());
    if (end != loaded_.tokenizer->special().unknown) end_of_turn = end;
  }

  Tokens encode() const;
  bool ends(std::int32_t token) const {
    return token == end_of_turn || ends_text(*loaded, token);
  }
  std::int64_t go_back_to(const Tokens& tokens);
  void write(Answer& answer, FunctionRef<void(std::string_view)> on_text);

  const LoadedModel* loaded;
  ChatOptions options;
  ChatTemplate chat_template;
  std::int32_t end_of_turn = -1;
  LanguageState state;
  std::vector<ChatMessage> messages;
  Tokens read;  // what the state has read
};

// The marks of the template are tokens; what only looks like one is not. As
// long as no message does, the whole chat is one text to the tokenizer, as
// others read it.
Tokens Chat::Memory::encode() const {
  const auto ids = [&](std::string_view text, bool find_special) {
    return loaded->tokenizer
        ->encode(text, {.add_special_tokens = false,
                        .find_special_tokens = find_special})
        .ids;
  };
  const auto parts = chat_template.parts(messages);
  const bool is_plain =
      std::none_of(parts.begin(), parts.end(), [&](const auto& part) {
        return part.is_message && ids(part.text, true) != ids(part.text, false);
      });
  if (is_plain) return ids(chat_template.render(messages), true);
  Tokens tokens;
  for (const auto& part : parts) {
    const Tokens more = ids(part.text, !part.is_message);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

// Forgets what the chat no longer has, and the last token, whose scores are
// wanted. Returns how many tokens are kept.
std::int64_t Chat::Memory::go_back_to(const Tokens& tokens) {
  const auto differs =
      std::mismatch(read.begin(), read.end(), tokens.begin(), tokens.end());
  const std::int64_t kept = std::min<std::int64_t>(differs.first - read.begin(),
                                                   std::ssize(tokens) - 1);
  if (kept < std::ssize(read)) state.truncate(0, kept);
  read.resize(static_cast<std::size_t>(kept));
  return kept;
}

// One token after the other, from the scores that the state has.
void Chat::Memory::write(Answer& answer,
                         FunctionRef<void(std::string_view)> on_text) {
  text::TextStream stream(*loaded->tokenizer);
  const auto add = [&](const std::string& more) {
    answer.text += more;
    if (!more.empty()) on_text(more);
  };
  try {
    while (answer.tokens < options.max_tokens) {
      const std::int32_t token = sample_token(
          scores_of(*loaded, state, 0), options.sampling, state.length(0));
      if (ends(token)) break;
      ++answer.tokens;
      add(stream.next(token));
      if (state.length(0) == loaded->model.config().context) break;
      InterruptScope::poll();
      const LanguageState::Reading next{0, {&token, 1}};
      state.read({&next, 1});
      read.push_back(token);
    }
  } catch (const Interrupted&) {
    answer.interrupted = true;
  }
  add(stream.rest());
}

Chat::Chat(const LoadedModel& loaded, const ChatOptions& options)
    : memory_(std::make_unique<Memory>(loaded, options)) {
  require(options.max_tokens > 0, "Chat", "max_tokens must be positive; it is ",
          options.max_tokens);
  reset(options.system);
}
Chat::~Chat() = default;

Chat::Answer Chat::say(std::string text,
                       FunctionRef<void(std::string_view)> on_text) {
  Memory& m = *memory_;
  m.messages.push_back({Role::kUser, std::move(text)});
  Answer answer;
  try {
    const Tokens tokens = m.encode();
    const std::int64_t context = m.loaded->model.config().context;
    require(std::ssize(tokens) < context, "Chat::say",
            "the model reads at most ", context, " tokens; the chat has ",
            tokens.size());
    const std::int64_t kept = m.go_back_to(tokens);
    const std::span<const std::int32_t> fresh =
        std::span(tokens).subspan(static_cast<std::size_t>(kept));
    const LanguageState::Reading reading{0, fresh};
    m.state.read({&reading, 1});
    m.read = tokens;
    answer.read = std::ssize(fresh);
  } catch (const Interrupted&) {
    answer.interrupted = true;
  } catch (...) {
    m.messages.pop_back();
    throw;
  }
  if (!answer.interrupted) m.write(answer, on_text);
  if (answer.interrupted && answer.text.empty()) {
    m.messages.pop_back();
  } else {
    m.messages.push_back({Role::kAssistant, answer.text});
  }
  return answer;
}

void Chat::reset(std::string system) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({Role::kSystem, std::move(system)});
  reset(std::move(messages));
}

void Chat::reset(std::vector<ChatMessage> messages) {
  Memory& m = *memory_;
  // A template without a place for one of them says so now.
  std::vector<ChatMessage> next = messages;
  next.push_back({Role::kUser, ""});
  static_cast<void>(m.chat_template.render(next));
  m.messages = std::move(messages);
}

std::span<const ChatMessage> Chat::messages() const {
  return memory_->messages;
}
const ChatTemplate& Chat::chat_template() const {
  return memory_->chat_template;
}

}  // namespace regard::tasks
