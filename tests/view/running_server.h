// SPDX-License-Identifier: Apache-2.0
// A server on a thread of its own, and what tests ask it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "regard/view/server.h"
#include "view/small_translator.h"

namespace regard::view {

inline constexpr const char* kJson = "application/json";

class Running {
 public:
  explicit Running(const tasks::Translator* translator,
                   std::optional<Trace> trace = {}, ServerOptions options = {})
      : server(translator, std::move(trace), std::move(options)),
        thread_([this] { server.run(); }) {}
  ~Running() {
    server.stop();
    thread_.join();
  }

  httplib::Client client() const {
    return httplib::Client("127.0.0.1", server.port());
  }

  // What comes back for these bytes, until the server closes.
  std::string raw(const std::string& bytes, bool finish = true) const {
    const int socket = connect_raw();
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t sent =
          ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(sent));
    }
    if (finish) ::shutdown(socket, SHUT_WR);
    std::string answer;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(socket, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(socket);
    return answer;
  }

  int connect_raw() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address),
                  sizeof(address)) != 0) {
      throw std::runtime_error("cannot connect");
    }
    return socket;
  }

  Server server;

 private:
  std::thread thread_;
};

inline std::string error_code(const std::string& body) {
  return nlohmann::json::parse(body)["error"]["code"];
}
inline std::string error_text(const std::string& body) {
  return nlohmann::json::parse(body)["error"]["message"];
}

class ViewServer : public ::testing::Test {
 protected:
  // Expects a refusal of a body of POST /api/trace.
  void expect_refused(const Running& running, const std::string& body,
                      int status, const std::string& code,
                      const std::string& message) {
    auto client = running.client();
    const auto result = client.Post("/api/trace", body, kJson);
    ASSERT_TRUE(result) << httplib::to_string(result.error());
    EXPECT_EQ(result->status, status) << body.substr(0, 200);
    EXPECT_EQ(error_code(result->body), code);
    EXPECT_EQ(error_text(result->body), message);
    EXPECT_THAT(result->get_header_value("Content-Type"),
                ::testing::StartsWith(kJson));
    EXPECT_EQ(result->get_header_value("X-Content-Type-Options"), "nosniff");
  }

  test::SmallTranslator small_;
};

}  // namespace regard::view
