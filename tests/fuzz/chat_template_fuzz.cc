// SPDX-License-Identifier: Apache-2.0
// Any template is either refused with ParseError or writes chats in which each
// message stands once, whole or without its blanks.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "regard/core/error.h"
#include "regard/tasks/chat.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regard::tasks;
  using Role = ChatMessage::Role;
  const std::string_view jinja(reinterpret_cast<const char*>(data), size);
  const std::array<ChatMessage, 4> messages = {{{Role::kSystem, "Be brief."},
                                                {Role::kUser, " 1 + 1? "},
                                                {Role::kAssistant, "Two."},
                                                {Role::kUser, "Really?"}}};
  try {
    const ChatTemplate chat_template(jinja, "<s>", "</s>");
    const std::span<const ChatMessage> all = messages;
    for (const auto part : {all.subspan(1), all, all.subspan(3)}) {
      try {
        const std::string chat = chat_template.render(part);
        if (chat.find("Really?") == std::string::npos) std::abort();
        std::string joined;
        for (const auto& piece : chat_template.parts(part)) {
          joined += piece.text;
        }
        if (joined != chat) std::abort();
      } catch (const regard::InvalidArgument&) {  // no place for a system
        if (part[0].role != Role::kSystem) std::abort();
      }
    }
  } catch (const regard::ParseError&) {
  }
  return 0;
}
