// SPDX-License-Identifier: Apache-2.0
// Weights and tokens that some other model gave.
#include "regard/view/imported_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/safetensors.h"
#include "regard/tensor/tensor.h"

namespace regard::view {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Words = std::vector<std::string>;

// Every row looks at key `key` alone.
Tensor looking_at(std::int64_t key, Shape shape) {
  Tensor tensor(std::move(shape));
  const std::int64_t columns = tensor.shape().back();
  const auto values = tensor.values<float>();
  for (std::int64_t i = key; i < tensor.size(); i += columns) {
    values[static_cast<std::size_t>(i)] = 1;
  }
  return tensor;
}

class GivenWeights : public ::testing::Test {
 protected:
  Trace trace(const StateDict& weights, Tokens tokens) {
    save_safetensors(folder_ / "w", weights);
    return trace_imported(std::move(tokens), open_weights(folder_ / "w"));
  }
  auto refusing(const StateDict& weights, Tokens tokens) {
    return [this, weights, tokens] { trace(weights, tokens); };
  }
  TemporaryFolder folder_;
};

std::vector<std::string> names_of(const Trace& trace) {
  std::vector<std::string> names;
  for (const Section& section : trace.sections()) {
    names.push_back(section.config().name);
  }
  return names;
}

TEST_F(GivenWeights, AreASectionForEachTensorOfFour) {
  const Trace t = trace({{"cross", looking_at(1, {2, 3, 4, 2})},
                         {"decoder", looking_at(0, {2, 3, 4, 4})},
                         {"encoder", looking_at(1, {1, 3, 2, 2})}},
                        {Words{"a", "b"}, Words{"w", "x", "y", "z"}});
  EXPECT_THAT(names_of(t), ElementsAre("encoder", "decoder", "cross"));
  EXPECT_EQ(t.sections()[0].layers(), 1);
  EXPECT_EQ(t.sections()[1].layers(), 2);
  EXPECT_TRUE(t.sections()[1].has_rollout());
  EXPECT_FALSE(t.sections()[2].has_rollout());
  EXPECT_EQ(t.axes()[t.sections()[2].config().queries].tokens[3], "z");
  EXPECT_EQ(t.axes()[t.sections()[2].config().keys].tokens[1], "b");
  EXPECT_THAT(t.sections()[2].codes(1, 2),
              ElementsAre(0, 65535, 0, 65535, 0, 65535, 0, 65535));
  EXPECT_EQ(t.steps, 0);
}

TEST_F(GivenWeights, AreLayersWhereNamesEndInNumbers) {
  StateDict weights;
  for (int i = 0; i < 11; ++i) {
    weights.emplace("layer." + std::to_string(i), looking_at(i % 3, {2, 3, 3}));
  }
  const Trace t = trace(weights, {Words{"a", "b", "c"}, {}});
  EXPECT_THAT(names_of(t), ElementsAre("layer"));
  ASSERT_EQ(t.sections()[0].layers(), 11);
  // Layer 10 stands behind layer 9, not behind layer 1.
  EXPECT_EQ(t.sections()[0].codes(10, 0)[1], 65535);
  EXPECT_EQ(t.sections()[0].codes(2, 1)[2], 65535);

  // As Hugging Face gives them: a batch of one in front.
  const Trace batched = trace(
      {{"0", looking_at(0, {1, 2, 3, 3})}, {"1", looking_at(2, {1, 2, 3, 3})}},
      {Words{"a", "b", "c"}, {}});
  EXPECT_EQ(batched.sections()[0].layers(), 2);
  EXPECT_EQ(batched.sections()[0].codes(1, 1)[2], 65535);

  const Trace one =
      trace({{"w", looking_at(0, {2, 2})}}, {Words{"a", "b"}, {}});
  EXPECT_EQ(one.sections()[0].layers(), 1);
  EXPECT_EQ(one.sections()[0].config().heads, 1);
}

TEST_F(GivenWeights, MayBeOfAnyFloatingType) {
  for (const DType dtype :
       {DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    Tensor tensor(dtype, {1, 1, 2});
    if (dtype == DType::kFloat64) tensor.values<double>()[1] = 0.25;
    if (dtype == DType::kFloat16) tensor.values<Float16>()[1] = Float16(0.25f);
    if (dtype == DType::kBFloat16) {
      tensor.values<BFloat16>()[1] = BFloat16(0.25f);
    }
    const Trace t = trace({{"w", tensor}}, {Words{"a", "b"}, Words{"q"}, true});
    EXPECT_THAT(t.sections()[0].codes(0, 0), ElementsAre(0, 16384));
  }
}

TEST_F(GivenWeights, AreRefusedInOtherShapes) {
  const Tokens two{Words{"a", "b"}, {}};
  EXPECT_THAT(refusing({{"w", Tensor({2, 1, 1, 2, 2})}}, two),
              ThrowsMessage<ParseError>(
                  HasSubstr("weights are floating tensors of 2 to 4 "
                            "dimensions; ")));
  EXPECT_THAT(refusing({{"w", Tensor(DType::kInt32, {2, 2})}}, two),
              ThrowsMessage<ParseError>(HasSubstr("has w, int32 [2, 2]")));
  EXPECT_THAT(
      refusing({{"w", Tensor({0, 2, 2})}}, two),
      ThrowsMessage<ParseError>(HasSubstr("weights must not be empty; ")));
  EXPECT_THAT(refusing({}, two),
              ThrowsMessage<ParseError>(HasSubstr("has no tensor")));
  EXPECT_THAT(
      refusing({{"l.0", Tensor({1, 2, 2})}, {"l.2", Tensor({1, 2, 2})}}, two),
      ThrowsMessage<ParseError>(HasSubstr("has 2 of 'l' up to 2")));
  EXPECT_THAT(
      refusing({{"l.0", Tensor({1, 2, 2})}, {"l.1", Tensor({2, 2, 2})}}, two),
      ThrowsMessage<ParseError>(
          HasSubstr("those of 'l' differ at l.1, [1, 2, 2, 2]")));
  EXPECT_THAT(
      refusing({{"l.0", Tensor({1, 2, 2})}, {"l_0", Tensor({1, 2, 2})}}, two),
      ThrowsMessage<ParseError>(HasSubstr("has layer 0 of 'l' again as l_0")));
}

TEST_F(GivenWeights, AreRefusedWhereTheTokensDoNotFit) {
  EXPECT_THAT(refusing({{"w", Tensor({1, 1, 3, 3})}}, {Words{"a", "b"}, {}}),
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "'w' must have 2 x 2 queries and keys, as there are tokens; "
                  "it is [1, 1, 3, 3]")));
  EXPECT_THAT(refusing({{"cross", Tensor({1, 1, 3, 3})}},
                       {Words{"a", "b"}, Words{"c"}}),
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "'cross' must have 1 queries and 2 keys, as there are "
                  "tokens; it is [1, 1, 3, 3]")));
  EXPECT_THAT(refusing({{"w", Tensor({1, 1, 2, 2})}},
                       {Words{"a", "b"}, Words{"c", "d"}}),
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "source and target are equally long, so 'w' could be "
                  "either's: name it encoder, decoder or cross")));
  EXPECT_THAT(
      [] {
        trace_imported({Words{"a"}, {}}, {});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("there must be weights; there are none")));
}

TEST_F(GivenWeights, ThatCannotBeReadAreRefused) {
  EXPECT_THROW(open_weights(folder_ / "none"), IoError);
  write_text(folder_ / "bad", "no tensors at all");
  EXPECT_THROW(open_weights(folder_ / "bad"), ParseError);
}

TEST(Tokens, ComeInThreeForms) {
  const Tokens self = parse_tokens(R"(["a", "\u4e2d"])", "t");
  EXPECT_THAT(self.source, ElementsAre("a", "\u4e2d"));
  EXPECT_FALSE(self.target);
  const Tokens pair =
      parse_tokens(R"({"source": ["a"], "target": ["b", "c"]})", "t");
  EXPECT_THAT(pair.source, ElementsAre("a"));
  EXPECT_THAT(*pair.target, ElementsAre("b", "c"));
  const Tokens cross =
      parse_tokens(R"({"queries": ["q"], "keys": ["k"]})", "t");
  EXPECT_THAT(cross.source, ElementsAre("k"));
  EXPECT_THAT(*cross.target, ElementsAre("q"));
  EXPECT_TRUE(cross.only_cross);
}

TEST(Tokens, AreRefusedInOtherForms) {
  const auto refused = [](const std::string& json) {
    return [json] { parse_tokens(json, "t.json"); };
  };
  EXPECT_THAT(refused("[\"a\""),
              ThrowsMessage<ParseError>(HasSubstr("'t.json' is not JSON")));
  EXPECT_THAT(refused("3"), ThrowsMessage<ParseError>(
                                HasSubstr("'t.json' is something else")));
  EXPECT_THAT(refused(R"({"source": ["a"]})"),
              ThrowsMessage<ParseError>(HasSubstr("something else")));
  EXPECT_THAT(refused("[]"), ThrowsMessage<ParseError>(HasSubstr(
                                 "a list of strings that is not empty")));
  EXPECT_THAT(refused("[\"a\", 1]"),
              ThrowsMessage<ParseError>(HasSubstr("has something else")));
  EXPECT_THAT(refused("[\"\xff\"]"),
              ThrowsMessage<ParseError>(HasSubstr("not JSON")));
}

}  // namespace
}  // namespace regard::view
