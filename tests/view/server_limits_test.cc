// SPDX-License-Identifier: Apache-2.0
// The server among strangers: other sites, nonsense, slow clients and too many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "regard/core/error.h"
#include "regard/view/page.h"
#include "regard/view/server.h"
#include "view/request.h"
#include "view/running_server.h"

namespace regard::view {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// Only a page's own origin may read; only our own names lead here.
TEST_F(ViewServer, RefusesOtherSites) {
  const Running running(small_.translator.get());
  const std::string own = "127.0.0.1:" + std::to_string(running.server.port());
  const auto status = [&](const char* path, const httplib::Headers& headers) {
    auto client = running.client();
    const auto result =
        std::string(path) == "/api/trace"
            ? client.Post(path, headers, R"({"text": "a"})", kJson)
            : client.Get(path, headers);
    return result ? result->status : -1;
  };
  for (const char* path : {"/", "/api/info", "/api/trace"}) {
    EXPECT_EQ(status(path, {{"Host", "evil.example"}}), 403) << path;
    EXPECT_EQ(status(path, {{"Host", "evil.example:80"}}), 403) << path;
    EXPECT_EQ(status(path, {{"Host", "127.0.0.1.evil.example"}}), 403) << path;
    EXPECT_EQ(status(path, {{"Host", "localhost:1234"}}), 200) << path;
    EXPECT_EQ(status(path, {{"Host", "[::1]:1234"}}), 200) << path;
  }
  for (const char* path : {"/api/info", "/api/trace"}) {
    EXPECT_EQ(status(path, {{"Origin", "https://evil.example"}}), 403) << path;
    EXPECT_EQ(status(path, {{"Origin", "null"}}), 403) << path;
    EXPECT_EQ(status(path, {{"Origin", "http://" + own}}), 200) << path;
    EXPECT_EQ(status(path, {{"Sec-Fetch-Site", "cross-site"}}), 403) << path;
    EXPECT_EQ(status(path, {{"Sec-Fetch-Site", "same-site"}}), 403) << path;
    EXPECT_EQ(status(path, {{"Sec-Fetch-Site", "same-origin"}}), 200) << path;
  }
  // A link may lead here.
  EXPECT_EQ(status("/", {{"Sec-Fetch-Site", "cross-site"}}), 200);
  EXPECT_THAT(
      running.raw("GET /api/info HTTP/1.0\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 403"),
            HasSubstr("this server answers to localhost, to its "
                      "address and to its --host, not to other names")));
  auto client = running.client();
  EXPECT_EQ(
      error_text(
          client.Get("/api/info", {{"Origin", "https://evil.example"}})->body),
      "pages of other sites may not ask this server");
}

TEST_F(ViewServer, AnswersToTheNameItWasGiven) {
  EXPECT_FALSE(refuse_stranger({.host = "box.lan:8777"}, "box.lan"));
  EXPECT_FALSE(refuse_stranger({.host = "BOX.lan"}, "box.lan"));
  EXPECT_TRUE(refuse_stranger({.host = "other.lan"}, "box.lan"));
  EXPECT_TRUE(refuse_stranger({.host = ""}, "box.lan"));
  EXPECT_TRUE(refuse_stranger({.host = "[evil"}, "box.lan"));
  EXPECT_TRUE(refuse_stranger({.host = ":80"}, "box.lan"));
}

TEST_F(ViewServer, OutlivesNonsense) {
  const Running running(small_.translator.get());
  EXPECT_THAT(running.raw("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  running.raw(std::string(1000, '\0'));
  running.raw("GET / HTTP/1.1\r\nHost: localhost\r\n");
  running.raw(
      "POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: 50\r\n\r\n{\"te");
  running.raw(
      "POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: "
      "99999999999999999999999\r\n\r\n{}");
  running.raw(
      "POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: -1\r\n\r\n{}");
  // Thousands of ranges, and ranges that lie outside: the page comes once.
  std::string ranges = "bytes=0-1";
  while (ranges.size() < 8000) ranges += ",0-";
  for (const std::string& range :
       {ranges, std::string("bytes=99999999-"), std::string("bytes=-5")}) {
    const std::string answer = running.raw(
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nRange: " +
        range + "\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    EXPECT_LT(answer.size(), viewer_page().size() + 2000);
  }
  running.raw("GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes=5-2\r\n\r\n");
  // Headers without end.
  std::string headers = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 100000; ++i) headers += "X: aaaaaaaaaaaaaaaaaaaa\r\n";
  EXPECT_THAT(running.raw(headers + "\r\n"), Not(HasSubstr("200 OK")));
  EXPECT_THAT(running.raw("GET /" + std::string(100000, 'a') +
                          " HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              Not(HasSubstr("200 OK")));
  EXPECT_EQ(running.client().Get("/api/info")->status, 200);
}

// A body that is not read must not become the next request.
TEST_F(ViewServer, TakesNoBodyForARequest) {
  const Running running(small_.translator.get());
  const std::string inner = "GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string answer = running.raw(
      "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
      std::to_string(inner.size()) + "\r\n\r\n" + inner);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(answer, Not(HasSubstr("200 OK")));
}

std::size_t answers_in(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("HTTP/1.1 ", at)) != text.npos;
       ++at) {
    ++count;
  }
  return count;
}

TEST_F(ViewServer, TakesTheRestOfALargeBodyForNoRequest) {
  const Running running(small_.translator.get());
  std::string requests;
  while (requests.size() < 70000) {
    requests += "GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n";
  }
  for (const std::string& body : {std::string(70869, 'a'), requests}) {
    for (const char* after : {"keep-alive", "close"}) {
      const std::string answer = running.raw(
          "POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
          "application/json\r\nConnection: " +
          std::string(after) + "\r\nContent-Length: " +
          std::to_string(body.size()) + "\r\n\r\n" + body);
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 413"));
      EXPECT_EQ(answers_in(answer), 1u);
    }
  }
  // Nor a body of another type, which is not read at all.
  const std::string other = running.raw(
      "POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/jsonp\r\nContent-Length: " +
      std::to_string(requests.size()) + "\r\n\r\n" + requests);
  EXPECT_THAT(other, StartsWith("HTTP/1.1 415"));
  EXPECT_EQ(answers_in(other), 1u);
}

TEST_F(ViewServer, TakesTheRestOfALateBodyForNoRequest) {
  ServerOptions options;
  options.limits.patience = std::chrono::milliseconds(200);
  const Running running(small_.translator.get(), {}, options);
  const int socket = running.connect_raw();
  const auto say = [socket](const std::string& bytes) {
    ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  };
  std::string answer;
  char buffer[4096];
  const auto hear = [&] {
    const ssize_t got = ::recv(socket, buffer, sizeof(buffer), 0);
    if (got > 0) answer.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  };
  say("POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: 50\r\n\r\n{\"te");
  EXPECT_TRUE(hear());
  say("GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n");
  while (hear()) {
  }
  ::close(socket);
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 400"),
                            HasSubstr("the body did not come whole")));
  EXPECT_EQ(answers_in(answer), 1u);
}

// Nor must what follows a head that could not be read.
TEST_F(ViewServer, AnswersWhatIsNoRequestOnce) {
  const Running running(small_.translator.get());
  for (const char* bytes :
       {"nonsense\r\nHost: localhost\r\n\r\n",
        "GET /\r\nGET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\r\n\r\n\r\n", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n"}) {
    const std::string answer = running.raw(bytes);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << answer;
  }
}

// A client that sends a byte now and then is let go when its time is over.
TEST_F(ViewServer, LetsGoOfSlowClients) {
  ServerOptions options;
  options.limits.patience = std::chrono::milliseconds(300);
  options.limits.idle = std::chrono::milliseconds(100);
  options.limits.connections = 1;
  const Running running(small_.translator.get(), {}, options);
  const int slow = running.connect_raw();
  std::atomic<bool> closed = false;
  std::thread drip([&] {
    while (::send(slow, "G", 1, MSG_NOSIGNAL) == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    closed = true;
  });
  // The only connection that is served must become free for this one.
  auto client = running.client();
  client.set_read_timeout(60);
  EXPECT_EQ(client.Get("/api/info")->status, 200);
  drip.join();
  EXPECT_TRUE(closed);
  ::close(slow);
}

TEST_F(ViewServer, SaysThatItIsBusyBeyondItsLimits) {
  ServerOptions options;
  options.limits.connections = 1;
  options.limits.waiting = 1;
  options.limits.idle = std::chrono::milliseconds(60000);
  const Running running(small_.translator.get(), {}, options);
  // One holds the thread in the midst of a request, one waits behind it.
  const int first = running.connect_raw();
  ::send(first, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
  int second = -1;
  std::string answer;
  // The server takes connections in its own time.
  for (int i = 0; i < 200 && answer.empty(); ++i) {
    const int next = running.connect_raw();
    pollfd poll_next{next, POLLIN, 0};
    if (::poll(&poll_next, 1, 50) > 0) {
      char buffer[4096];
      const ssize_t got = ::recv(next, buffer, sizeof(buffer), 0);
      if (got > 0) answer.assign(buffer, static_cast<std::size_t>(got));
      ::close(next);
    } else {
      if (second >= 0) ::close(second);
      second = next;
    }
  }
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 503 Service Unavailable"),
                            HasSubstr("\"code\":\"busy\""),
                            HasSubstr("more is asked than this machine can "
                                      "do; try again in a moment")));
  ::close(first);
  if (second >= 0) ::close(second);
}

// Many at once: all are answered, or told that it is too much.
TEST_F(ViewServer, ComputesSoManyAtOnceAndQueuesSoMany) {
  ServerOptions options;
  options.limits.computing = 1;
  options.limits.queued = 0;
  const Running running(small_.translator.get(), {}, options);
  std::atomic<int> done = 0;
  std::atomic<int> busy = 0;
  std::atomic<int> other = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j) {
        auto client = running.client();
        const auto result = client.Post(
            "/api/trace", R"({"text": "the cat sees a dog in the house"})",
            kJson);
        if (result && result->status == 200) {
          ++done;
        } else if (result && result->status == 503 &&
                   error_code(result->body) == "busy") {
          ++busy;
        } else {
          ++other;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done + busy, 40);
  EXPECT_GT(done, 0);
  EXPECT_EQ(other, 0);
}

TEST_F(ViewServer, ForgetsOldTracesToStayWithinItsMemory) {
  ServerOptions few;
  few.limits.traces = 3;
  ServerOptions small;
  small.limits.trace_bytes = 100000;
  for (const ServerOptions& options : {few, small}) {
    const Running running(small_.translator.get(), {}, options);
    auto client = running.client();
    const auto ask = [&client] {
      const auto result =
          client.Post("/api/trace", R"({"text": "the cat sees a dog"})", kJson);
      return json::parse(result->body)["id"].get<std::string>();
    };
    const auto status = [&client](const std::string& id) {
      return client.Get("/api/weights?section=0&layer=0&head=0&trace=" + id)
          ->status;
    };
    const std::string first = ask();
    EXPECT_EQ(status(first), 200);
    std::string last;
    for (int i = 0; i < 40; ++i) last = ask();
    EXPECT_EQ(status(first), 404);
    EXPECT_EQ(status(last), 200);
  }
}

TEST_F(ViewServer, CanBeStoppedBeforeItRuns) {
  Server server(small_.translator.get(), {});
  server.stop();
  server.run();
  EXPECT_GT(server.port(), 0);
}

TEST_F(ViewServer, RefusesAPortThatIsTaken) {
  const Running running(small_.translator.get());
  ServerOptions options;
  options.port = running.server.port();
  EXPECT_THAT([&] { Server(small_.translator.get(), {}, options); },
              ThrowsMessage<IoError>(HasSubstr("view::Server: cannot listen at "
                                               "127.0.0.1:")));
  options.port = 70000;
  EXPECT_THAT([&] { Server(small_.translator.get(), {}, options); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("a port must lie in 0 .. 65535; got 70000")));
  options = {};
  options.host = "";
  EXPECT_THAT([&] { Server(small_.translator.get(), {}, options); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("view::Server: host must be an address or a name; "
                            "an empty one would be every address")));
}

}  // namespace
}  // namespace regard::view
