// SPDX-License-Identifier: Apache-2.0
// regard info: what this machine has, and what regard makes of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/screen.h"
#include "cli/text.h"
#include "json/json.h"
#include "regard/core/threads.h"
#include "regard/core/version.h"
#include "regard/kernels/targets.h"
#include "regard/mpi/mpi.h"

namespace regard::cli {
namespace {

constexpr const char* kFooter =
    R"(Examples:
  regard info
  regard info --json)";

struct Cpu {
  std::string name = "unknown";
  std::vector<std::string> features;
};

// The features that matter for attention, under Linux's names for them, of x86
// and of Arm.
constexpr std::array<std::string_view, 19> kFeatures = {
    "sse4_1",      "avx",      "fma",      "f16c",        "avx2",
    "avx512f",     "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",    "asimd",
    "asimdhp",     "asimddp",  "bf16",     "sve"};

Cpu read_cpu() {
  Cpu cpu;
  std::ifstream file("/proc/cpuinfo");
  // The first processor stands for all.
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key =
        line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = line.substr(std::min(colon + 2, line.size()));
    if (key == "model name") cpu.name = on_one_line(value);
    if (key != "flags" && key != "Features") continue;
    std::istringstream words(value);
    for (std::string word; words >> word;) {
      if (std::find(kFeatures.begin(), kFeatures.end(), word) !=
          kFeatures.end()) {
        cpu.features.push_back(word);
      }
    }
  }
  std::sort(cpu.features.begin(), cpu.features.end(),
            [](const std::string& a, const std::string& b) {
              return std::find(kFeatures.begin(), kFeatures.end(), a) <
                     std::find(kFeatures.begin(), kFeatures.end(), b);
            });
  return cpu;
}

void run_info(bool as_json) {
  const Cpu cpu = read_cpu();
  const std::vector<std::string> targets = simd_targets();
  const int threads =
      thread_count({}, std::numeric_limits<std::int64_t>::max());
  if (as_json) {
    const Json info = {
        {"version", version()},     {"cpu", cpu.name},
        {"features", cpu.features}, {"simd_target", simd_target()},
        {"simd_targets", targets},  {"threads", threads},
        {"mpi", mpi::available()}};
    print(info.dump({.indent = 2,
                     .keys = Json::Keys::kAsWritten,
                     .replace_invalid = true}) +
          "\n");
    return;
  }
  constexpr int kLeft = 13;
  const std::string features = wrapped(
      cpu.features.empty() ? "unknown"
                           : fmt::format("{}", fmt::join(cpu.features, " ")),
      kLeft, 80);
  print(
      fmt::format("version      {}\n"
                  "cpu          {}\n"
                  "features    {}"
                  "SIMD target  {} (this machine runs {})\n"
                  "threads      {}\n"
                  "MPI          {}\n",
                  version(), cpu.name, features.substr(kLeft - 1),
                  simd_target(), fmt::join(targets, ", "), threads,
                  mpi::available() ? "built in" : "not built in"));
}

}  // namespace

Command add_info(App& program) {
  const auto as_json = std::make_shared<bool>(false);
  App* app = program.add_subcommand(
      "info", "The CPU, the SIMD target in use, the threads, MPI");
  app->footer(kFooter);
  app->add_flag("--json", *as_json, "As JSON");
  return {app, [as_json] { run_info(*as_json); }};
}

}  // namespace regard::cli
