// SPDX-License-Identifier: Apache-2.0
// Attention over a sequence that is spread over ranks: the bits of one process.
#include "regard/dist/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/dist/explain.h"
#include "regard/tensor/tensor.h"
#include "support/local_ranks.h"

namespace regard::dist {
namespace {

using regard::testing::LocalRanks;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Sizes {
  std::int64_t batch = 2, heads = 8, kv_heads = 4, q_len = 37, kv_len = 53;
  std::int64_t d_k = 8, d_v = 12;
};

Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed) {
  Random random(seed);
  Tensor tensor(dtype, std::move(shape));
  if (dtype == DType::kFloat32) {
    for (float& x : tensor.values<float>()) x = random.normal();
  } else {
    for (BFloat16& x : tensor.values<BFloat16>()) x = BFloat16(random.normal());
  }
  return tensor;
}

UntypedView<4> view_of(Tensor& tensor) {
  UntypedView<4> view;
  view.data = tensor.bytes();
  view.dtype = tensor.dtype();
  std::copy_n(tensor.shape().begin(), 4, view.shape.begin());
  std::int64_t stride = 1;
  for (std::size_t i = 4; i-- > 0;) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

ConstUntypedView<4> read(const UntypedView<4>& view) {
  return {view.data, view.dtype, view.shape, view.strides};
}

// The positions of a rank: a view into the whole, with strides of its own.
UntypedView<4> part(Tensor& tensor, const Communicator& ranks) {
  UntypedView<4> view = view_of(tensor);
  const Part own = part_of(view.shape[2], ranks.rank(), ranks.size());
  view.data = static_cast<std::byte*>(view.data) +
              static_cast<std::size_t>(own.begin * view.strides[2]) *
                  size_of(view.dtype);
  view.shape[2] = own.size();
  return view;
}

TensorView<float, 3> part(TensorView<float, 3> rows,
                          const Communicator& ranks) {
  const Part own = part_of(rows.extent(2), ranks.rank(), ranks.size());
  return {rows.data() + own.begin,
          {rows.extent(0), rows.extent(1), own.size()},
          rows.strides()};
}

// Everything that a training step reads and writes.
struct Step {
  Step(const Sizes& s, DType dtype)
      : q(random_tensor(dtype, {s.batch, s.heads, s.q_len, s.d_k}, 1)),
        k(random_tensor(dtype, {s.batch, s.kv_heads, s.kv_len, s.d_k}, 2)),
        v(random_tensor(dtype, {s.batch, s.kv_heads, s.kv_len, s.d_v}, 3)),
        d_out(random_tensor(dtype, {s.batch, s.heads, s.q_len, s.d_v}, 4)),
        out(dtype, {s.batch, s.heads, s.q_len, s.d_v}),
        rows(Shape{s.batch, s.heads, s.q_len}),
        d_q(dtype, q.shape()),
        d_k(dtype, k.shape()),
        d_v(dtype, v.shape()),
        d_rows(random_tensor(DType::kFloat32, rows.shape(), 5)),
        d_slopes(Shape{s.heads}),
        d_sinks(Shape{s.heads}),
        d_scales(Shape{s.heads}) {}
  Tensor q, k, v, d_out, out, rows, d_q, d_k, d_v, d_rows;
  Tensor d_slopes, d_sinks, d_scales;
  bool uses_rows = false;  // log-sum-exp has a gradient, too

  void alone(AttentionOptions options) {
    options.log_sum_exp = rows.view<float, 3>();
    regard::attention_forward(read(view_of(q)), read(view_of(k)),
                              read(view_of(v)), view_of(out), options);
    UntypedGradients gradients{
        .q = view_of(d_q), .k = view_of(d_k), .v = view_of(d_v)};
    add_spans(gradients, options, *this);
    regard::attention_backward(
        UntypedBackwardInputs{
            .q = read(view_of(q)),
            .k = read(view_of(k)),
            .v = read(view_of(v)),
            .out = read(view_of(out)),
            .d_out = read(view_of(d_out)),
            .d_log_sum_exp = gradient_of_rows(d_rows.view<float, 3>())},
        gradients, options);
  }

  // All ranks write into one Step, each its part; per-head gradients are whole
  // on each, so each rank has a Step of its own for these.
  void spread(Communicator& ranks, AttentionOptions options, Step& own) {
    options.log_sum_exp = part(rows.view<float, 3>(), ranks);
    attention_forward(ranks, read(part(q, ranks)), read(part(k, ranks)),
                      read(part(v, ranks)), part(out, ranks), options);
    UntypedGradients gradients{
        .q = part(d_q, ranks), .k = part(d_k, ranks), .v = part(d_v, ranks)};
    add_spans(gradients, options, own);
    attention_backward(
        ranks,
        UntypedBackwardInputs{.q = read(part(q, ranks)),
                              .k = read(part(k, ranks)),
                              .v = read(part(v, ranks)),
                              .out = read(part(out, ranks)),
                              .d_out = read(part(d_out, ranks)),
                              .d_log_sum_exp = gradient_of_rows(
                                  part(d_rows.view<float, 3>(), ranks))},
        gradients, options);
  }

 private:
  ConstUntypedView<3> gradient_of_rows(const TensorView<float, 3>& own) const {
    if (!uses_rows) return {};
    return ConstUntypedView<3>(own);
  }

  static void add_spans(UntypedGradients& gradients,
                        const AttentionOptions& options, Step& step) {
    if (!options.alibi_slopes.empty()) {
      gradients.alibi_slopes = UntypedView<1>(step.d_slopes.values<float>());
    }
    if (!options.sinks.empty()) {
      gradients.sinks = UntypedView<1>(step.d_sinks.values<float>());
    }
    if (!options.head_scales.empty()) {
      gradients.head_scales = UntypedView<1>(step.d_scales.values<float>());
    }
  }
};

bool same(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.bytes(), b.bytes(), a.byte_count()) == 0;
}

using Change = std::function<void(Step&)>;

void expect_same_bits(const Sizes& sizes, AttentionOptions options, DType dtype,
                      const std::string& what, const Change& change = {}) {
  if (options.threads.count == 0) options.threads = {.count = 1};
  Step alone(sizes, dtype);
  if (change) change(alone);
  alone.alone(options);
  for (const int ranks : {1, 2, 3, 4, 5}) {
    const std::string where = what + ", ranks " + std::to_string(ranks);
    Step spread(sizes, dtype);
    if (change) change(spread);
    LocalRanks::run(ranks, [&](Communicator& communicator) {
      Step own(sizes, dtype);
      spread.spread(communicator, options, own);
      EXPECT_TRUE(same(own.d_slopes, alone.d_slopes)) << where;
      EXPECT_TRUE(same(own.d_sinks, alone.d_sinks)) << where;
      EXPECT_TRUE(same(own.d_scales, alone.d_scales)) << where;
    });
    EXPECT_TRUE(same(spread.out, alone.out)) << where;
    EXPECT_TRUE(same(spread.rows, alone.rows)) << where;
    EXPECT_TRUE(same(spread.d_q, alone.d_q)) << where;
    EXPECT_TRUE(same(spread.d_k, alone.d_k)) << where;
    EXPECT_TRUE(same(spread.d_v, alone.d_v)) << where;
  }
}

TEST(SpreadAttention, HasTheBitsOfOneProcess) {
  const Sizes sizes;
  const Tensor per_head = random_tensor(DType::kFloat32, {sizes.heads}, 5);
  const std::span<const float> values = per_head.values<float>();
  const Tensor bias = random_tensor(
      DType::kFloat32, {1, sizes.heads, sizes.q_len, sizes.kv_len}, 6);
  const Tensor shared_bias =
      random_tensor(DType::kFloat32, {sizes.batch, 1, 1, sizes.kv_len}, 7);
  Tensor pairs(DType::kBool, {1, sizes.heads, sizes.q_len, sizes.kv_len});
  std::size_t n = 0;
  for (bool& pair : pairs.values<bool>()) pair = n++ * 2654435761u % 7 < 4;
  const auto check = [&](const char* what, const AttentionOptions& options) {
    expect_same_bits(sizes, options, DType::kFloat32, what);
  };
  check("plain", {});
  check("causal", {.mask = mask::causal()});
  check("window and lengths",
        {.mask = mask::window(9, 3) & mask::lengths({40, 53})});
  check("dense mask of each head",
        {.mask = mask::keep(std::as_const(pairs).view<bool, 4>())});
  check("ALiBi, softcap", {.alibi_slopes = values, .softcap = 5.0f});
  check("sinks, scales", {.head_scales = values, .sinks = values});
  check("bias", {.bias = bias.view<float, 4>()});
  check("bias of all heads", {.bias = shared_bias.view<float, 4>()});
  check("cosine", {.score = Score::kCosine, .scale = 4.0f});
  check("dropout", {.dropout = {0.3f, 7}});
  expect_same_bits(sizes, {}, DType::kFloat32, "gradient of log-sum-exp",
                   [](Step& step) { step.uses_rows = true; });
}

TEST(SpreadAttention, HasTheBitsOfOneProcessInBFloat16) {
  expect_same_bits({}, {.mask = mask::causal(), .threads = {.count = 1}},
                   DType::kBFloat16, "bf16");
}

// More ranks than positions: some hold none.
TEST(SpreadAttention, RanksMayHoldNoPosition) {
  expect_same_bits({.q_len = 2, .kv_len = 3}, {.threads = {.count = 1}},
                   DType::kFloat32, "short");
}

// Per rank: what is not its own of the heads, of q, k, v and out.
TEST(SpreadAttention, SendsWhatTheFormulaSays) {
  const Sizes s{.q_len = 40, .kv_len = 80};
  constexpr int kRanks = 4;
  LocalRanks::run(kRanks, [&](Communicator& ranks) {
    Step step(s, DType::kFloat32);
    attention_forward(ranks, read(part(step.q, ranks)),
                      read(part(step.k, ranks)), read(part(step.v, ranks)),
                      part(step.out, ranks), {.threads = {.count = 1}});
    const std::int64_t own =
        s.batch * s.heads * (s.q_len / kRanks) * (s.d_k + s.d_v) +
        s.batch * s.kv_heads * (s.kv_len / kRanks) * (s.d_k + s.d_v);
    const std::int64_t formula = 4 * own * (kRanks - 1) / kRanks;
    // And the lengths, 16 bytes to each other rank.
    EXPECT_EQ(ranks.bytes_sent(), formula + 16 * (kRanks - 1));
  });
}

// Lengths on both sides of the splits of 1024 keys, which ranks cut anywhere.
TEST(SpreadAttention, HasTheBitsOfOneProcessBySequence) {
  const Sizes sizes{.batch = 1,
                    .heads = 2,
                    .kv_heads = 1,
                    .q_len = 300,
                    .kv_len = 3100,
                    .d_k = 8,
                    .d_v = 12};
  const Tensor per_head = random_tensor(DType::kFloat32, {sizes.heads}, 5);
  const std::span<const float> values = per_head.values<float>();
  const Tensor bias =
      random_tensor(DType::kFloat32, {1, 1, 1, sizes.kv_len}, 6);
  Tensor pairs(DType::kBool, {1, sizes.heads, sizes.q_len, sizes.kv_len});
  std::size_t n = 0;
  for (bool& pair : pairs.values<bool>()) pair = n++ * 2654435761u % 7 < 4;
  const auto check = [&](const char* what, const AttentionOptions& options) {
    expect_same_bits(sizes, options, DType::kFloat32, what);
  };
  check("plain", {});
  check("causal", {.mask = mask::causal()});
  check("top left: most keys are seen by nobody",
        {.mask = mask::causal(mask::kTopLeft)});
  check("window", {.mask = mask::window(900, 0)});
  check("lengths", {.mask = mask::lengths({1500})});
  check("nothing is seen", {.mask = mask::lengths({0})});
  check("dense", {.mask = mask::causal() &
                          mask::keep(std::as_const(pairs).view<bool, 4>())});
  check("ALiBi, softcap", {.alibi_slopes = values, .softcap = 5.0f});
  check("sinks, scales", {.head_scales = values, .sinks = values});
  check("bias", {.bias = bias.view<float, 4>()});
  check("cosine", {.score = Score::kCosine, .scale = 4.0f});
  check("dropout", {.mask = mask::causal(), .dropout = {0.3f, 7}});
  check("three threads each",
        {.mask = mask::causal(), .threads = {.count = 3}});
  expect_same_bits(sizes, {.mask = mask::causal()}, DType::kBFloat16, "bf16");
  expect_same_bits(
      {.batch = 2, .heads = 3, .kv_heads = 1, .q_len = 2, .kv_len = 3}, {},
      DType::kFloat32, "short");
}

// Ranks hold several pieces of the keys, which travel one after the other, and
// several groups of heads; messages are long, and some of them are packed.
TEST(SpreadAttention, HasTheBitsOfOneProcessOverLongSequences) {
  const Sizes by_sequence{.batch = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .q_len = 1100,
                          .kv_len = 9300,
                          .d_k = 4,
                          .d_v = 4};
  expect_same_bits(by_sequence, {.mask = mask::causal()}, DType::kFloat32,
                   "pieces");
  expect_same_bits(by_sequence, {.mask = mask::window(1200, 0)},
                   DType::kFloat32, "pieces in a window");
  // Several threads add to the same rows, in turn.
  expect_same_bits({.batch = 1,
                    .heads = 2,
                    .kv_heads = 1,
                    .q_len = 2300,
                    .kv_len = 2600,
                    .d_k = 8,
                    .d_v = 4},
                   {.mask = mask::causal(), .threads = {.count = 3}},
                   DType::kFloat32, "threads in turn");
  // Whoever must see rows twice sees them in all pieces.
  expect_same_bits(by_sequence, {.mask = mask::causal()}, DType::kFloat32,
                   "pieces, and a value that is not finite", [](Step& step) {
                     step.v.view<float, 4>()(0, 0, 9000, 1) =
                         std::numeric_limits<float>::infinity();
                   });
  const Sizes by_heads{.batch = 2,
                       .heads = 14,
                       .kv_heads = 7,
                       .q_len = 2100,
                       .kv_len = 40,
                       .d_k = 8,
                       .d_v = 12};
  const Tensor slopes = random_tensor(DType::kFloat32, {by_heads.heads}, 5);
  expect_same_bits(by_heads, {.alibi_slopes = slopes.values<float>()},
                   DType::kFloat32, "groups of heads");
}

// Five heads on each key-value head: the kernels' groups of 48 rows are cut
// within a query, and ranks hold parts that begin anywhere.
TEST(SpreadAttention, HasTheBitsOfOneProcessWithGroupedHeads) {
  const Sizes sizes{.batch = 2,
                    .heads = 5,
                    .kv_heads = 1,
                    .q_len = 517,
                    .kv_len = 517,
                    .d_k = 20,
                    .d_v = 7};
  std::vector<std::int32_t> documents(517);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    documents[i] = i < 100 ? 0 : i < 333 ? 1 : 2;
  }
  const auto check = [&](const char* what, const AttentionOptions& options) {
    expect_same_bits(sizes, options, DType::kFloat32, what);
  };
  check("causal", {.mask = mask::causal()});
  check("window", {.mask = mask::window(61, 5)});
  check("documents", {.mask = mask::causal() & mask::documents(documents)});
  check("dropout and softcap", {.mask = mask::causal(),
                                .softcap = 4.0f,
                                .dropout = {0.2f, 11},
                                .threads = {.count = 2}});
  expect_same_bits(sizes, {.mask = mask::causal(), .score = Score::kCosine},
                   DType::kBFloat16, "cosine in bf16",
                   [](Step& step) { step.uses_rows = true; });
}

// An infinity behind the mask reaches nobody, one that is seen its rows.
TEST(SpreadAttention, KeepsWhatIsNotFiniteWhereItIsSeen) {
  const Sizes sizes{.batch = 1,
                    .heads = 1,
                    .kv_heads = 1,
                    .q_len = 1200,
                    .kv_len = 1200,
                    .d_k = 8,
                    .d_v = 12};
  expect_same_bits(sizes, {.mask = mask::causal()}, DType::kFloat32,
                   "infinite values", [](Step& step) {
                     const auto v = step.v.view<float, 4>();
                     v(0, 0, 1150, 3) = std::numeric_limits<float>::infinity();
                     v(0, 0, 700, 0) = std::numeric_limits<float>::quiet_NaN();
                   });
}

// Keys and values go to those whose queries see them.
TEST(SpreadAttention, AWindowSendsOnlyWhatIsSeen) {
  const Sizes s{.batch = 1,
                .heads = 1,
                .kv_heads = 1,
                .q_len = 8192,
                .kv_len = 8192,
                .d_k = 4,
                .d_v = 4};
  const auto sent = [&s](const Mask& mask) {
    std::atomic<std::int64_t> bytes = 0;
    LocalRanks::run(4, [&](Communicator& ranks) {
      Step step(s, DType::kFloat32);
      attention_forward(ranks, read(part(step.q, ranks)),
                        read(part(step.k, ranks)), read(part(step.v, ranks)),
                        part(step.out, ranks),
                        {.mask = mask, .threads = {.count = 1}});
      bytes += ranks.bytes_sent();
    });
    return bytes.load();
  };
  const std::int64_t all = 8192 * (4 + 4) * 4;  // keys and values, in bytes
  // Queries and results go to another rank but for those of two of eight
  // chunks; keys to three ranks.
  const std::int64_t small = 4 * 3 * (16 + 32 + 1);  // lengths, needs, a flag
  EXPECT_EQ(sent({}), all * 6 / 8 + 3 * all + small);
  // Of eight blocks of 1024 keys, rank i holds 2 i and 2 i + 1. Chunk c of the
  // queries sees blocks c - 1 and c, so that rank 0, which works on the chunks
  // 0 and 7, gets 6 and 7; rank 1 gets 0, 1, 5, 6; rank 2: 1, 2; rank 3: 2, 3,
  // 4.
  EXPECT_EQ(sent(mask::window(100, 0)), all * 6 / 8 + all * 11 / 8 + small);
}

// What explain() tells of a call is what is sent.
TEST(SpreadAttention, SendsWhatExplainSays) {
  const auto check = [](const Sizes& s, const AttentionOptions& options,
                        DType dtype, Way way) {
    for (const int count : {2, 3, 5}) {
      Step step(s, dtype);
      AttentionOptions whole = options;
      whole.threads = {.count = 1};
      whole.log_sum_exp = step.rows.view<float, 3>();
      const SpreadExplanation told =
          explain({s.batch, s.heads, s.kv_heads, s.q_len, s.kv_len, s.d_k,
                   s.d_v, dtype},
                  whole, count);
      EXPECT_EQ(told.way, way);
      LocalRanks::run(count, [&](Communicator& ranks) {
        Step own(s, dtype);
        const auto& forward =
            told.forward.sent[static_cast<std::size_t>(ranks.rank())];
        const auto& backward =
            told.backward.sent[static_cast<std::size_t>(ranks.rank())];
        AttentionOptions of_rank = whole;
        of_rank.log_sum_exp = part(step.rows.view<float, 3>(), ranks);
        attention_forward(ranks, read(part(step.q, ranks)),
                          read(part(step.k, ranks)), read(part(step.v, ranks)),
                          part(step.out, ranks), of_rank);
        EXPECT_EQ(ranks.bytes_sent(), forward.bytes) << ranks.rank();
        step.spread(ranks, whole, own);
        EXPECT_EQ(ranks.bytes_sent(), 2 * forward.bytes + backward.bytes)
            << ranks.rank();
      });
    }
  };
  const Sizes one{.batch = 1,
                  .heads = 2,
                  .kv_heads = 1,
                  .q_len = 1700,
                  .kv_len = 2100,
                  .d_k = 4,
                  .d_v = 6};
  check(one, {.mask = mask::causal()}, DType::kFloat32, Way::kBySequence);
  check(one, {.mask = mask::window(300, 0)}, DType::kBFloat16,
        Way::kBySequence);
  check({.heads = 10, .kv_heads = 5}, {}, DType::kFloat32, Way::kByHeads);
}

TEST(SpreadAttention, NamesWhatItRefuses) {
  const auto run = [](const Sizes& sizes, const AttentionOptions& options,
                      std::int64_t cut = 0) {
    LocalRanks::run(3, [&](Communicator& ranks) {
      Step step(sizes, DType::kFloat32);
      UntypedView<4> q = part(step.q, ranks), out = part(step.out, ranks);
      if (ranks.rank() == 1) {
        q.shape[2] -= cut;
        out.shape[2] -= cut;
      }
      attention_forward(ranks, read(q), read(part(step.k, ranks)),
                        read(part(step.v, ranks)), out, options);
    });
  };
  const std::array<float, 3> three{};
  const std::array<std::int64_t, 2> offsets = {0, 37}, kv_offsets = {0, 53};
  EXPECT_THAT(
      [&] {
        run({.batch = 1, .kv_heads = 1},
            {.sequences = {.q_offsets = offsets, .kv_offsets = kv_offsets}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("packed sequences are spread by heads")));
  EXPECT_THAT([&] { run({}, {.sinks = three}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "sinks must have as many heads as q, 8; it has 3")));
  EXPECT_THAT([&] { run({}, {}, 1); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("rank 1 must hold 12 of 36 queries; it has")));
}

// In both ways: results are copied to where they are wanted.
TEST(SpreadAttention, RefusesResultsThatDoNotFit) {
  for (const std::int64_t kv_heads : {1, 8}) {
    const auto run = [&](const auto& change) {
      LocalRanks::run(3, [&](Communicator& ranks) {
        Step step({.kv_heads = kv_heads}, DType::kFloat32);
        UntypedView<4> out = part(step.out, ranks);
        AttentionOptions options;
        options.log_sum_exp = part(step.rows.view<float, 3>(), ranks);
        change(step, out, options.log_sum_exp);
        attention_forward(ranks, read(part(step.q, ranks)),
                          read(part(step.k, ranks)), read(part(step.v, ranks)),
                          out, options);
      });
    };
    using Rows = TensorView<float, 3>;
    run([](Step&, UntypedView<4>&, Rows&) {});
    const auto refused = [](const char* words) {
      return ThrowsMessage<InvalidArgument>(HasSubstr(words));
    };
    EXPECT_THAT(
        [&] {
          run([](Step&, UntypedView<4>& out, Rows&) { out.shape[3] = 8; });
        },
        refused("out must be as wide as v; out is [2, 8, 1"));
    EXPECT_THAT(
        [&] {
          run([](Step&, UntypedView<4>& out, Rows&) { out.strides[2] = 11; });
        },
        refused("the rows of out must not overlap"));
    EXPECT_THAT(
        [&] {
          run([](Step&, UntypedView<4>&, Rows& rows) {
            rows = {rows.data(), {2, 1, rows.extent(2)}, rows.strides()};
          });
        },
        refused("log_sum_exp must be [batch, heads, own queries]; it "
                "is [2, 1, 1"));
    EXPECT_THAT(
        [&] {
          run([](Step& step, UntypedView<4>&, Rows& rows) {
            rows = step.rows.view<float, 3>();
          });
        },
        refused("it is [2, 8, 37]"));
    EXPECT_THAT(
        [&] {
          run([](Step&, UntypedView<4>&, Rows& rows) {
            rows = {rows.data(), rows.shape(), {rows.stride(0), 1, 1}};
          });
        },
        refused("the rows of log_sum_exp must not overlap"));
  }
}

}  // namespace
}  // namespace regard::dist
