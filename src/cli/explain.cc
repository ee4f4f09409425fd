// SPDX-License-Identifier: Apache-2.0
// regard explain: what an attention would cost, without running it.
#include "regard/attention/explain.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/mask_text.h"
#include "cli/screen.h"
#include "cli/tensor_file.h"
#include "cli/usage_error.h"
#include "core/plain_message.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/dist/explain.h"

namespace regard::cli {
namespace {

struct ExplainFlags {
  AttentionShape shape{};
  std::string dtype = "float32";
  std::vector<std::string> masks;
  int threads = 0;
  std::int64_t ranks = 1;
  bool as_json = false;
};

constexpr const char* kExamples =
    R"(Examples:
  regard explain --heads 8 --len 4096 --head-dim 64 --mask causal
      causal self attention: how much of the work the mask saves
  regard explain --heads 32 --kv-heads 8 --len 1 --kv-len 8192 --head-dim 128
      decoding: one new query and a long KV cache
  regard explain --len 1000000 --head-dim 64 --mask causal --ranks 4
      a sequence distributed over four processes: what each sends)";

Json call_json(const dist::SpreadCall& call) {
  Json sent = Json::array();
  for (const dist::Traffic& traffic : call.sent) {
    sent.push_back(
        {{"bytes", traffic.bytes}, {"hidden_bytes", traffic.hidden_bytes}});
  }
  return {{"flops", call.flops}, {"sent", sent}};
}

std::string as_json(const Explanation& e,
                    const dist::SpreadExplanation& spread) {
  const AttentionShape& s = e.shape;
  Json json = {{"shape",
                {{"batch", s.batch},
                 {"heads", s.heads},
                 {"kv_heads", s.kv_heads},
                 {"q_len", s.q_len},
                 {"kv_len", s.kv_len},
                 {"head_dim", s.d_k},
                 {"value_head_dim", s.d_v},
                 {"dtype", to_string(s.dtype)}}},
               {"path", e.path == AttentionPath::kFused ? "fused" : "plain"},
               {"simd_target", e.simd_target},
               {"threads", e.threads},
               {"rows", e.rows},
               {"row_blocks", e.row_blocks},
               {"rows_per_block", e.rows_per_block},
               {"splits", e.splits},
               {"tile_rows", e.tile_rows},
               {"tile_keys", e.tile_keys},
               {"full_tiles", e.full_tiles},
               {"mixed_tiles", e.mixed_tiles},
               {"skipped_tiles", e.skipped_tiles},
               {"pairs", e.pairs},
               {"visible_pairs", e.visible_pairs},
               {"visited_pairs", e.visited_pairs},
               {"flops", e.flops},
               {"scratch_bytes", e.scratch_bytes}};
  if (spread.ranks > 1) {
    json["ranks"] = {
        {"count", spread.ranks},
        {"way", spread.way == dist::Way::kByHeads ? "heads" : "sequence"},
        {"reason", spread.reason},
        {"forward", call_json(spread.forward)},
        {"backward", call_json(spread.backward)}};
  }
  return json.dump({.indent = 2, .keys = Json::Keys::kAsWritten}) + "\n";
}

void run_explain(const ExplainFlags& flags) {
  AttentionShape shape = flags.shape;
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  if (shape.kv_len < 0) shape.kv_len = shape.q_len;
  if (shape.d_v < 0) shape.d_v = shape.d_k;
  shape.dtype = parse_dtype(flags.dtype);
  const OwnedMask mask = parse_mask(flags.masks);
  AttentionOptions options;
  options.mask = mask.mask;
  options.threads = {.count = flags.threads};
  // All of it comes from the command line.
  try {
    const Explanation explanation = explain(shape, options);
    dist::SpreadExplanation spread;
    if (flags.ranks > 1) {
      spread = dist::explain(shape, options, static_cast<int>(flags.ranks));
    }
    print(flags.as_json
              ? as_json(explanation, spread)
              : to_string(explanation) +
                    (spread.ranks > 1 ? to_string(spread) : std::string()));
  } catch (const InvalidArgument& error) {
    throw UsageError(plain_message(error.what()));
  }
}

}  // namespace

Command add_explain(App& program) {
  const auto flags = std::make_shared<ExplainFlags>();
  AttentionShape& shape = flags->shape;
  // What is not given is taken from its partner.
  shape.kv_heads = 0;
  shape.kv_len = -1;
  shape.d_v = -1;
  App* app = program.add_subcommand(
      "explain", "How an attention call would run: tiles, flops, memory");
  app->footer(fmt::format("{}\n\n{}", kMaskHelp, kExamples));
  const auto add = [app](const char* name, std::int64_t& value, int least,
                         const char* help,
                         std::int64_t most = std::int64_t{1} << 40) {
    return app->add_option(name, value, help)
        ->type_name("N")
        ->check(whole_between(least, most));
  };
  constexpr auto kWidest = std::int64_t{1} << 20;
  add("--len,--q-len", shape.q_len, 0, "Queries")->required();
  add("--kv-len", shape.kv_len, 0, "Keys; as many as queries if not given");
  add("--head-dim", shape.d_k, 0, "Width of a head", kWidest)->required();
  add("--value-head-dim", shape.d_v, 0,
      "Width of a head's values; as --head-dim if not given", kWidest);
  add("--heads", shape.heads, 1, "1 if not given");
  add("--kv-heads", shape.kv_heads, 1, "As --heads if not given");
  add("--batch", shape.batch, 0, "1 if not given");
  app->add_option("--dtype", flags->dtype,
                  "float32 (if not given), bfloat16, float16 or float64")
      ->type_name("TYPE")
      ->check(check_dtype);
  app->add_option("--mask", flags->masks, "Which keys a query sees; see below")
      ->type_name("PARTS");
  add("--ranks", flags->ranks, 1,
      "Processes that share the sequence; 1 if not given", 4096);
  add_threads_flag(*app, flags->threads);
  app->add_flag("--json", flags->as_json, "As JSON");
  return {app, [flags] { run_explain(*flags); }};
}

}  // namespace regard::cli
