// SPDX-License-Identifier: Apache-2.0
// One file that holds a trace, and cannot be broken by it.
#include "regard/view/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/tensor/tensor.h"
#include "view/base64.h"

namespace regard::view {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

Trace small_trace(std::int64_t layers = 1, std::int64_t length = 2) {
  Trace trace;
  trace.source = "a";
  trace.add_axis({"source", std::vector<std::string>(
                                static_cast<std::size_t>(length), "a")});
  Section& section = trace.add_section({"encoder", 0, 0, 2, true});
  for (std::int64_t i = 0; i < layers; ++i) {
    Tensor weights({2, length, length});
    for (std::int64_t r = 0; r < length; ++r) {
      weights.view<float, 3>()(0, r, 0) = 1;
      weights.view<float, 3>()(1, r, r) = 1;
    }
    const Tensor& all = weights;
    section.add_layer(all.view<float, 3>());
  }
  return trace;
}

std::string content_of(const std::string& page, const std::string& id) {
  const std::string start = " id=\"" + id + "\">";
  const std::size_t begin = page.find(start);
  if (begin == std::string::npos) return "";
  return page.substr(begin + start.size(),
                     page.find("</script>", begin) - begin - start.size());
}

TEST(Base64, IsThatOfItsStandard) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

TEST(ExportedPage, HoldsASecondTraceByNamesOfItsOwn) {
  Trace beside = small_trace(1, 3);
  beside.source = "b";
  const std::string page = exported_page(small_trace(), {.beside = &beside});
  EXPECT_THAT(content_of(page, "regard-trace"), HasSubstr("\"source\":\"a\""));
  EXPECT_THAT(content_of(page, "regard-beside-trace"),
              HasSubstr("\"source\":\"b\""));
  const Section& other = beside.section(0);
  EXPECT_EQ(content_of(page, "regard-beside-block-0-0-1"),
            base64(little_endian(other.codes(0, 1))));
  EXPECT_EQ(content_of(page, "regard-beside-block-0-rollout"),
            base64(little_endian(other.rollout())));
  EXPECT_EQ(content_of(page, "regard-block-0-0-1"),
            base64(little_endian(small_trace().section(0).codes(0, 1))));
  // Both count.
  const Trace large = small_trace(9, 400);
  const std::size_t most = exported_page(large).size() + 2000000;
  EXPECT_THAT(
      [&] { exported_page(large, {.most_bytes = most, .beside = &large}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the page must have at most")));
}

TEST(ExportedPage, RefusesASecondTraceOfAnotherModel) {
  const Trace deeper = small_trace(2);
  EXPECT_THAT([&] { exported_page(small_trace(), {.beside = &deeper}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the same sections, layers and heads; the first "
                            "has encoder 1 x 2, the other encoder 2 x 2")));
}

TEST(ExportedPage, CountsItsPictures) {
  Trace trace = small_trace();
  trace.add_axis(
      {"picture", {"1,1"}, AxisPictures{1, 1, {std::string(3000, 'x')}}});
  const std::size_t most = viewer_page().size() + 2000;
  EXPECT_THAT(
      [&] { exported_page(trace, {.most_bytes = most}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the page must have at most")));
}

TEST(ExportedPage, HoldsTheHeaderAndEveryBlock) {
  const std::string page = exported_page(small_trace());
  const auto header = nlohmann::json::parse(content_of(page, "regard-trace"));
  EXPECT_EQ(header["id"], "");
  EXPECT_EQ(header["sections"][0]["heads"], 2);
  EXPECT_EQ(content_of(page, "regard-block-0-0-0"),
            base64(std::string("\xff\xff\0\0\xff\xff\0\0", 8)));
  EXPECT_EQ(content_of(page, "regard-block-0-0-1"),
            base64(std::string("\xff\xff\0\0\0\0\xff\xff", 8)));
  EXPECT_NE(content_of(page, "regard-block-0-rollout"), "");
  EXPECT_THAT(page, Not(HasSubstr("<!--regard-trace-->")));
  // All else of the page is as it was.
  EXPECT_TRUE(page.ends_with(
      viewer_page().substr(viewer_page().find("<!--regard-trace-->") + 19)));
}

TEST(ExportedPage, HoldsQueriesAndKeysWhereThereAreSome) {
  EXPECT_EQ(content_of(exported_page(small_trace()), "regard-vectors-0-0-0"),
            "");
  Trace trace;
  trace.add_axis({"source", {"a"}});
  Section& section = trace.add_section({"encoder", 0, 0, 2, true});
  const Tensor weights({1.0f, 1.0f}, {2, 1, 1});
  const Tensor q({1.0f, -2.0f}, {2, 1, 1});
  section.add_layer(weights.view<float, 3>());
  section.add_vectors(q.view<float, 3>(), weights.view<float, 3>(), 1);
  const std::string page = exported_page(trace);
  // Halves: a query, then a key.
  EXPECT_EQ(content_of(page, "regard-vectors-0-0-0"),
            base64(std::string("\0\x3c\0\x3c", 4)));
  EXPECT_EQ(content_of(page, "regard-vectors-0-0-1"),
            base64(std::string("\0\xc0\0\x3c", 4)));
  const auto header = nlohmann::json::parse(content_of(page, "regard-trace"));
  EXPECT_EQ(header["sections"][0]["vectors"]["dim"], 1);
  EXPECT_EQ(
      content_of(exported_page(trace, {.heads = {1}}), "regard-vectors-0-0-0"),
      "");
}

TEST(ExportedPage, CannotBeLeftByTheTextsInIt) {
  Trace trace = small_trace();
  trace.source =
      "</script><script>alert(1)</script><!-- <script> ]]> \u2028\u2029 \"\\";
  const std::string page = exported_page(trace);
  const std::string inside = content_of(page, "regard-trace");
  EXPECT_THAT(inside, Not(HasSubstr("<")));
  EXPECT_THAT(inside, Not(HasSubstr("\u2028")));
  EXPECT_THAT(inside, Not(HasSubstr("\u2029")));
  EXPECT_EQ(nlohmann::json::parse(inside)["source"], trace.source);
}

TEST(ExportedPage, AsksForNothing) {
  const std::string page = exported_page(small_trace());
  EXPECT_FALSE(std::regex_search(
      page,
      std::regex("<(script|link|img|iframe)[^>]* (src|href)=\"?'?(http|/)")));
}

TEST(ExportedPage, MayHoldSomeLayersAndHeadsOnly) {
  const std::string page =
      exported_page(small_trace(3), {.layers = {2, 0}, .heads = {1}});
  EXPECT_NE(content_of(page, "regard-block-0-0-1"), "");
  EXPECT_NE(content_of(page, "regard-block-0-2-1"), "");
  EXPECT_EQ(content_of(page, "regard-block-0-1-1"), "");
  EXPECT_EQ(content_of(page, "regard-block-0-0-0"), "");
  EXPECT_NE(content_of(page, "regard-block-0-rollout"), "");
  EXPECT_THAT([] { exported_page(small_trace(3), {.layers = {3}}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("there are layers 0 .. 2; got 3")));
  EXPECT_THAT([] { exported_page(small_trace(3), {.heads = {-1}}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("there are heads 0 .. 1; got -1")));
}

TEST(ExportedPage, SaysWhatToChooseWhereItWouldBeTooLarge) {
  const Trace trace = small_trace(4, 300);
  EXPECT_THAT([&] { exported_page(trace, {.most_bytes = 2000000}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "the page must have at most 2 MB; it would have 2: choose "
                  "fewer layers or heads, such as layers 0-3 (--layers 0-3)")));
  EXPECT_GT(exported_page(trace, {.layers = {0}, .most_bytes = 2000000}).size(),
            400000u);
}

TEST(ExportPage, WritesAWholeFileOrNone) {
  const TemporaryFolder folder;
  export_page(small_trace(), folder / "page.html");
  EXPECT_EQ(read_text(folder / "page.html"), exported_page(small_trace()));
  EXPECT_THAT(
      [&] {
        export_page(small_trace(), folder / "page.html", {.most_bytes = 10});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("at most 0 MB")));
  EXPECT_EQ(folder.files().size(), 1u);
  EXPECT_EQ(read_text(folder / "page.html"), exported_page(small_trace()));
  EXPECT_THAT(
      [&] { export_page(small_trace(), folder / "no" / "page.html"); },
      ThrowsMessage<IoError>(HasSubstr("view::export_page: cannot write")));
}

// A browser with this policy loads and sends nothing that is not ours.
TEST(Page, CarriesAPolicyThatForbidsAllButItself) {
  const std::string policy = page_policy();
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, Not(HasSubstr("http:")));
}

}  // namespace
}  // namespace regard::view
