// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/tasks/generate.h"
#include "regard/tasks/language_model.h"

namespace regard::tasks {

struct ChatMessage {
  enum class Role { kSystem, kUser, kAssistant };
  Role role = Role::kUser;
  std::string text;
};

// How a model was taught to read a chat. Files say it in Jinja, a language for
// programs; here the common ones are known by the marks that they contain:
// ChatML, Llama 2, Llama 3, Mistral, Gemma, Phi-3 and Zephyr.
class ChatTemplate {
 public:
  // begin and end are how the model's tokenizer writes those tokens. Throws
  // ParseError for a template that is none of them, or empty: the text shows
  // it.
  ChatTemplate(std::string_view jinja, std::string begin, std::string end);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  const std::string& name() const;  // "ChatML"
  // What ends an answer, besides the model's own stop tokens.
  const std::string& end_of_turn() const;

  // The chat up to where the model's answer begins, as parts that follow each
  // other: marks of the template, and texts of messages in which nothing is a
  // mark. The first message may be the system's; then the user's and the
  // model's alternate. Throws InvalidArgument for another order, and for a
  // system message where the template has no place for one.
  struct Part {
    std::string text;
    bool is_message = false;
  };
  std::vector<Part> parts(std::span<const ChatMessage> messages) const;
  std::string render(std::span<const ChatMessage> messages) const;

 private:
  struct Format;
  std::unique_ptr<const Format> format_;
};

struct ChatOptions {
  std::string system{};            // empty: the template's own, if it has one
  std::int64_t max_tokens = 1024;  // of one answer
  Sampling sampling{};
  Threads threads{};
};

// A talk with a model. It remembers keys and values: each turn reads what is
// new. An answer is the same as if the whole chat had been read at once.
class Chat {
 public:
  // Borrows the model. Throws ParseError where its chat template is not known.
  Chat(const LoadedModel& loaded, const ChatOptions& options);
  ~Chat();

  struct Answer {
    std::string text;
    std::int64_t read = 0;  // tokens, beside those that were remembered
    std::int64_t tokens = 0;
    bool interrupted = false;
  };

  // The answer to what the user says. `on_text` gets its pieces as they are
  // written. Where an InterruptScope of the caller stops it, the answer ends
  // there, and the chat goes on from it; without a word of an answer, the
  // question is forgotten. Throws InvalidArgument for a chat that no longer
  // fits in the model's context, and forgets the question. What looks like a
  // mark of the template in `text` is text.
  Answer say(std::string text, FunctionRef<void(std::string_view)> on_text);

  // Forgets all messages. The system's message is then this one, or again the
  // template's own where it is empty.
  void reset(std::string system);
  // The chat is then this one, and the user's turn: what somebody has kept of
  // it. Throws InvalidArgument for messages in an order that the template does
  // not have; nothing has then changed.
  void reset(std::vector<ChatMessage> messages);
  std::span<const ChatMessage> messages() const;
  const ChatTemplate& chat_template() const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace regard::tasks
