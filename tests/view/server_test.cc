// SPDX-License-Identifier: Apache-2.0
// The server: what it answers, and every refusal with its text and status.
#include "regard/view/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "regard/core/error.h"
#include "regard/core/version.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/text_encoder.h"
#include "regard/view/encoding.h"
#include "regard/view/page.h"
#include "regard/view/translation.h"
#include "support/encoder_folder.h"
#include "view/request.h"
#include "view/small_translator.h"

namespace regard::view {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr const char* kJson = "application/json";

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

std::string error_code(const std::string& body) {
  return json::parse(body)["error"]["code"];
}
std::string error_text(const std::string& body) {
  return json::parse(body)["error"]["message"];
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
    EXPECT_THAT(result->get_header_value("Content-Type"), StartsWith(kJson));
    EXPECT_EQ(result->get_header_value("X-Content-Type-Options"), "nosniff");
  }

  test::SmallTranslator small_;
};

TEST_F(ViewServer, GivesThePageWithItsPolicy) {
  const Running running(small_.translator.get());
  auto client = running.client();
  const auto page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->body, viewer_page());
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page->get_header_value("Content-Security-Policy"),
            page_policy() + "; frame-ancestors 'none'");
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page->get_header_value("X-Frame-Options"), "DENY");
  EXPECT_EQ(page->get_header_value("Cache-Control"), "no-store");
  EXPECT_EQ(page->get_header_value("Referrer-Policy"), "no-referrer");
  EXPECT_EQ(page->get_header_value("Cross-Origin-Resource-Policy"),
            "same-origin");
  EXPECT_FALSE(page->has_header("Access-Control-Allow-Origin"));
}

TEST_F(ViewServer, TellsOfItsModelAndLimits) {
  ServerOptions options;
  options.model = "small";
  options.note = {{"en", "untrained"}, {"zh", "x"}};
  const Running running(small_.translator.get(), {}, options);
  const auto info = json::parse(running.client().Get("/api/info")->body);
  EXPECT_EQ(info["model"]["name"], "small");
  EXPECT_EQ(info["model"]["note"]["en"], "untrained");
  EXPECT_THAT(info["directions"].get<std::vector<std::string>>(),
              ElementsAre("en-de"));
  EXPECT_EQ(info["can_read"], true);
  EXPECT_EQ(info["trace"], nullptr);
  EXPECT_EQ(info["limits"]["characters"], 2000);
  EXPECT_EQ(info["limits"]["tokens"], 200);
  EXPECT_EQ(info["version"], version());
}

TEST_F(ViewServer, TranslatesAndGivesTheWeights) {
  const Running running(small_.translator.get());
  auto client = running.client();
  client.set_keep_alive(true);
  const auto traced =
      client.Post("/api/trace", R"({"text": "the cat\nsees"})", kJson);
  ASSERT_TRUE(traced);
  ASSERT_EQ(traced->status, 200) << traced->body;
  const auto header = json::parse(traced->body);
  const Trace truth = trace_translation(*small_.translator, "the cat sees");
  EXPECT_EQ(header["target"], truth.target);
  EXPECT_EQ(header["source"], "the cat sees");
  const std::string id = header["id"];
  EXPECT_EQ(id.size(), 32u);
  const auto weights =
      client.Get("/api/weights?trace=" + id + "&section=2&layer=1&head=2");
  ASSERT_EQ(weights->status, 200);
  EXPECT_EQ(weights->get_header_value("Content-Type"),
            "application/octet-stream");
  EXPECT_EQ(weights->body, little_endian(truth.sections()[2].codes(1, 2)));
  const auto rollout =
      client.Get("/api/weights?trace=" + id + "&section=0&layer=rollout");
  EXPECT_EQ(rollout->body, little_endian(truth.sections()[0].rollout()));
  const auto rows =
      client.Get("/api/rows?trace=" + id + "&section=2&queries=0-1");
  ASSERT_EQ(rows->status, 200) << rows->body;
  EXPECT_EQ(rows->body, little_endian(truth.sections()[2].rows_of({0, 1})));
  const auto vectors =
      client.Get("/api/vectors?trace=" + id + "&section=1&layer=2&head=0");
  ASSERT_EQ(vectors->status, 200) << vectors->body;
  EXPECT_EQ(vectors->body, little_endian(truth.sections()[1].vectors(2, 0)));
}

TEST_F(ViewServer, OpensItsTranslationsWhereItIsTold) {
  ServerOptions options;
  options.start = {.section = 1, .head = 2};
  const Running running(small_.translator.get(), {}, options);
  const auto traced =
      running.client().Post("/api/trace", R"({"text": "the cat"})", kJson);
  ASSERT_EQ(traced->status, 200) << traced->body;
  EXPECT_EQ(json::parse(traced->body)["start"],
            (json{{"section", 1}, {"head", 2}}));
}

TEST_F(ViewServer, ShowsTheTraceItWasStartedWith) {
  const Trace trace = trace_translation(*small_.translator, "a dog");
  const Running running(nullptr, trace);
  auto client = running.client();
  const auto info = json::parse(client.Get("/api/info")->body);
  EXPECT_EQ(info["can_read"], false);
  EXPECT_TRUE(info["directions"].empty());
  EXPECT_EQ(info["trace"]["source"], "a dog");
  const std::string id = info["trace"]["id"];
  EXPECT_EQ(
      client.Get("/api/weights?section=0&layer=0&head=0&trace=" + id)->body,
      little_endian(trace.sections()[0].codes(0, 0)));
  expect_refused(running, R"({"text": "a"})", 404, "no_model",
                 "there is no model to read a text: start regard view "
                 "--model");
}

TEST_F(ViewServer, LetsAnEncoderReadWhatIsTyped) {
  const testing::TemporaryFolder folder;
  testing::write_encoder_folder(folder.path());
  const auto encoder = tasks::TextEncoder::load(folder.path());
  ServerOptions options;
  options.encoder = &encoder;
  options.limits.tokens = 9;
  const Running running(nullptr, {}, options);
  auto client = running.client();
  const json info = json::parse(client.Get("/api/info")->body);
  EXPECT_EQ(info["can_read"], true);
  EXPECT_TRUE(info["directions"].empty());
  const auto result = client.Post(
      "/api/trace", R"({"text": "the cats", "direction": ""})", kJson);
  ASSERT_EQ(result->status, 200) << result->body;
  const json trace = json::parse(result->body);
  EXPECT_EQ(trace["axes"][0]["tokens"],
            (json{"[CLS]", "the", "cats", "[SEP]"}));
  const std::string id = trace["id"];
  const Trace expected = trace_encoding(encoder, "the cats");
  EXPECT_EQ(
      client.Get("/api/weights?section=0&layer=1&head=1&trace=" + id)->body,
      little_endian(expected.sections()[0].codes(1, 1)));
  expect_refused(running, R"({"text": "a", "direction": "en-de"})", 400,
                 "direction", "an encoder has no direction");
  expect_refused(running, R"({"text": "a a a a a a a a"})", 422, "too_long",
                 "a text may have at most 9 tokens; it has 10");
}

TEST_F(ViewServer, HasASecondTraceBesideTheFirst) {
  ServerOptions options;
  options.beside = trace_translation(*small_.translator, "a dog sees the cat");
  const Trace truth = *options.beside;
  const Running running(
      nullptr, trace_translation(*small_.translator, "the cat sees"), options);
  auto client = running.client();
  const json info = json::parse(client.Get("/api/info")->body);
  EXPECT_EQ(info["trace"]["source"], "the cat sees");
  EXPECT_EQ(info["beside"]["source"], "a dog sees the cat");
  const std::string id = info["beside"]["id"];
  EXPECT_NE(id, info["trace"]["id"]);
  EXPECT_EQ(
      client.Get("/api/weights?section=0&layer=1&head=2&trace=" + id)->body,
      little_endian(truth.sections()[0].codes(1, 2)));
}

TEST_F(ViewServer, LetsALanguageModelGoOnWithWhatIsTyped) {
  const std::filesystem::path folder =
      std::filesystem::path(REGARD_SOURCE_DIR) / "../shared/models/stories260K";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << folder << " is not there";
  }
  const tasks::LoadedModel loaded =
      tasks::load_language_model(folder / "stories260K.f32.gguf");
  ServerOptions options;
  options.language_model = &loaded;
  options.max_tokens = 3;
  options.limits.tokens = 9;
  const Running running(nullptr, {}, options);
  auto client = running.client();
  const json info = json::parse(client.Get("/api/info")->body);
  EXPECT_EQ(info["can_read"], true);
  EXPECT_TRUE(info["directions"].empty());
  const auto result =
      client.Post("/api/trace", R"({"text": "Once upon"})", kJson);
  ASSERT_EQ(result->status, 200) << result->body;
  const json trace = json::parse(result->body);
  EXPECT_EQ(trace["target"], " a time,");  // as every story begins
  EXPECT_EQ(trace["sections"][0]["name"], "decoder");
  EXPECT_EQ(trace["sections"][0]["causal"], true);
  expect_refused(running, R"({"text": "a", "direction": "en-de"})", 400,
                 "direction", "a language model has no direction");
  expect_refused(running, R"({"text": "a b c d e f g h i j"})", 422, "too_long",
                 "a text may have at most 9 tokens; it has 13");
}

TEST_F(ViewServer, RefusesWhatIsNoText) {
  const Running running(small_.translator.get());
  const std::string no_object =
      "the body must be a JSON object, such as {\"text\": \"...\"}";
  expect_refused(running, "{", 400, "bad_request", no_object);
  expect_refused(running, "", 400, "bad_request", no_object);
  expect_refused(running, "[1]", 400, "bad_request", no_object);
  expect_refused(running, std::string(60000, '['), 400, "bad_request",
                 no_object);
  expect_refused(running, "{\"text\": \"\xff\"}", 400, "bad_request",
                 "the body must be UTF-8");
  expect_refused(running, R"({"text": "\ud800"})", 400, "bad_request",
                 no_object);
  expect_refused(running, R"({"text": 3})", 400, "bad_request",
                 "text must be a string");
  expect_refused(running, R"({"text": "a", "direction": null})", 400,
                 "bad_request", "direction must be a string");
  expect_refused(running, R"({"text": "a", "file": "/etc/passwd"})", 400,
                 "bad_request",
                 "the body may have text and direction, nothing else");
  expect_refused(running, "{}", 422, "empty", "there must be a text");
  expect_refused(running, R"({"text": " \n\t "})", 422, "empty",
                 "there must be a text");
  expect_refused(running, R"({"text": "\ud83d\ude00"})", 422, "unreadable",
                 "no character of the sentence is in the model's vocabulary");
}

TEST_F(ViewServer, RefusesADirectionThatItDoesNotKnow) {
  const Running one(small_.translator.get());
  expect_refused(one, R"({"text": "a", "direction": "de-en"})", 400,
                 "direction", "the direction must be en-de");
  const test::SmallTranslator both({"en", "de", true});
  const Running two(both.translator.get());
  expect_refused(two, R"({"text": "a", "direction": "en-fr"})", 400,
                 "direction", "the direction must be en-de or de-en");
  expect_refused(two, R"({"text": "a"})", 400, "direction",
                 "the direction must be en-de or de-en");
  for (const char* direction : {"en-de", "de-en"}) {
    const auto traced = two.client().Post(
        "/api/trace", json{{"text", "a"}, {"direction", direction}}.dump(),
        kJson);
    const std::string tag = json::parse(traced->body)["axes"][0]["tokens"][0];
    EXPECT_EQ(tag, std::string("<2") + (direction + 3) + ">");
  }
}

TEST_F(ViewServer, RefusesTextsAndBodiesThatAreTooLong) {
  ServerOptions options;
  options.limits.characters = 20;
  options.limits.tokens = 5;
  options.limits.body_bytes = 100;
  const Running running(small_.translator.get(), {}, options);
  expect_refused(running, json{{"text", std::string(21, 'a')}}.dump(), 422,
                 "too_long",
                 "a text may have at most 20 characters; it has 21");
  expect_refused(running, R"({"text": "a a a a a"})", 422, "too_long",
                 "a text may have at most 5 tokens; it has 6");
  const auto result =
      running.client().Post("/api/trace", R"({"text": "a a a a a"})", kJson);
  EXPECT_EQ(json::parse(result->body)["error"]["limit"], 5);
  EXPECT_EQ(json::parse(result->body)["error"]["count"], 6);
  expect_refused(running, json{{"text", std::string(200, 'a')}}.dump(), 413,
                 "too_large", "a body may have at most 100 bytes");
  // Chunks do not say how long they will become.
  std::string chunks =
      "POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20000; ++i) chunks += "10\r\naaaaaaaaaaaaaaaa\r\n";
  EXPECT_THAT(running.raw(chunks + "0\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 413"),
                    HasSubstr("a body may have at most 100 bytes")));
}

TEST_F(ViewServer, RefusesOtherKindsOfBodies) {
  const Running running(small_.translator.get());
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=x", ""}) {
    const auto result =
        running.client().Post("/api/trace", R"({"text": "a"})", type);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 415) << type;
    EXPECT_EQ(error_code(result->body), "content_type");
    EXPECT_EQ(error_text(result->body), "the body must be application/json");
  }
}

TEST_F(ViewServer, KnowsItsRoutesOnly) {
  const Running running(small_.translator.get());
  auto client = running.client();
  for (const char* path :
       {"/index.html", "/api", "/api/info/", "//", "/../etc/passwd",
        "/%2e%2e/etc/passwd", "/api/../api/info", "/favicon.ico", "/API/INFO",
        "/api/info%00"}) {
    const auto result = client.Get(path);
    ASSERT_TRUE(result) << path;
    EXPECT_EQ(result->status, 404) << path;
    EXPECT_EQ(error_text(result->body), "there is nothing at this address");
  }
  const auto put = client.Put("/api/info", "x", "text/plain");
  EXPECT_EQ(put->status, 405);
  EXPECT_EQ(error_text(put->body), "/api/info takes GET, nothing else");
  EXPECT_EQ(client.Get("/api/trace")->status, 405);
  EXPECT_EQ(error_text(client.Get("/api/trace")->body),
            "/api/trace takes POST, nothing else");
  EXPECT_EQ(client.Options("/api/trace")->status, 405);
  EXPECT_EQ(client.Delete("/")->status, 405);
  EXPECT_EQ(client.Head("/")->status, 405);
}

TEST_F(ViewServer, RefusesBlocksThatAreNotThere) {
  const Running running(nullptr,
                        trace_translation(*small_.translator, "a dog"));
  std::string route = "/api/weights";
  const auto expect = [&](const std::string& query, int status,
                          const std::string& code, const std::string& text) {
    const auto result = running.client().Get(route + query);
    EXPECT_EQ(result->status, status) << query;
    EXPECT_EQ(error_code(result->body), code);
    EXPECT_THAT(error_text(result->body), HasSubstr(text)) << query;
  };
  expect("", 404, "gone", "there is no such trace, or it had to make room");
  expect("?trace=nonsense&section=0&layer=0&head=0", 404, "gone", "make room");
  expect("?trace=start", 400, "bad_request", "section must be a number");
  expect("?trace=start&section=3&layer=0&head=0", 400, "bad_request",
         "there are sections 0 .. 2; got 3");
  expect("?trace=start&section=0&layer=9&head=0", 400, "bad_request",
         "'encoder' has layers 0 .. 1 and heads 0 .. 2; got layer 9, head 0");
  expect("?trace=start&section=0&layer=-1&head=0", 400, "bad_request",
         "layer must be a number");
  expect("?trace=start&section=0&layer=0&head=1e3", 400, "bad_request",
         "head must be a number");
  expect("?trace=start&section=0&layer=0&head=99999999999999999999", 400,
         "bad_request", "head must be a number");
  expect("?trace=start&section=2&layer=rollout", 400, "bad_request",
         "this section has no rollout");
  route = "/api/vectors";
  expect("?trace=no&section=0&layer=0&head=0", 404, "gone", "make room");
  expect("?trace=start&section=0&layer=rollout&head=0", 400, "bad_request",
         "layer must be a number");
  expect("?trace=start&section=0&layer=0&head=3", 400, "bad_request",
         "got layer 0, head 3");
  route = "/api/rows";
  expect("?trace=no&section=0&queries=0-0", 404, "gone", "make room");
  expect("?trace=start&section=0", 400, "bad_request",
         "queries must be two numbers, such as 3-4");
  expect("?trace=start&section=0&queries=0-99", 400, "bad_request",
         "'encoder' has queries 0 .. 2; got 0 to 99");
}

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
