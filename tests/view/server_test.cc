// SPDX-License-Identifier: Apache-2.0
// The server: what it answers, and every refusal with its text and status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "regard/core/version.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/text_encoder.h"
#include "regard/view/encoding.h"
#include "regard/view/page.h"
#include "regard/view/server.h"
#include "regard/view/translation.h"
#include "support/encoder_folder.h"
#include "view/request.h"
#include "view/running_server.h"

namespace regard::view {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

}  // namespace
}  // namespace regard::view
