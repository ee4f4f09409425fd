// SPDX-License-Identifier: Apache-2.0
// Which way bf16 numbers are multiplied, and that asking never crashes.
#include "kernels/bf16/cpu.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "regard/attention/attention.h"

#if defined(__x86_64__) && defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#endif

namespace regard::kernels {
namespace {

constexpr Bf16Path kPaths[] = {Bf16Path::kAmx, Bf16Path::kDot,
                               Bf16Path::kPortable};

// Fills a block of keys large enough for every kernel; false on a wrong result.
bool attention_works() {
  constexpr std::int64_t kLength = 200, kWidth = 64;
  const std::vector<BFloat16> ones(kLength * kWidth, BFloat16(1.0f));
  std::vector<BFloat16> out(kLength * kWidth);
  const TensorView<const BFloat16, 4> in(ones.data(), {1, 1, kLength, kWidth});
  attention_forward(in, in, in, {out.data(), {1, 1, kLength, kWidth}},
                    {.threads = {.count = 1}, .compute = Compute::kBFloat16});
  for (const BFloat16 value : out) {
    if (static_cast<float>(value) != 1.0f) return false;
  }
  return true;
}

std::string cpu_flags() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("flags")) return line + " ";
  }
  return "";
}

TEST(Bf16Cpu, PortableIsAlwaysThere) {
  EXPECT_TRUE(bf16_path_available(Bf16Path::kPortable));
}

TEST(Bf16Cpu, ClaimsNothingThatTheSystemDoesNotShow) {
  const std::string flags = cpu_flags();
  if (flags.empty()) GTEST_SKIP() << "no /proc/cpuinfo with flags here";
  if (bf16_path_available(Bf16Path::kAmx)) {
    EXPECT_NE(flags.find(" amx_bf16 "), std::string::npos);
  }
  EXPECT_EQ(bf16_path_available(Bf16Path::kDot),
            flags.find(" avx512_bf16 ") != std::string::npos);
}

TEST(Bf16Cpu, AChosenPathIsTheOneInUse) {
  const Bf16Path best = bf16_path();
  for (const Bf16Path path : kPaths) {
    EXPECT_EQ(choose_bf16_path(path), bf16_path_available(path));
    if (bf16_path_available(path)) {
      EXPECT_EQ(bf16_path(), path);
    }
    EXPECT_TRUE(attention_works());
  }
  choose_best_bf16_path();
  EXPECT_EQ(bf16_path(), best);
  EXPECT_TRUE(bf16_path_available(best));
}

#if defined(__x86_64__) && defined(__linux__)

// From now on arch_prctl fails, as under a kernel that has no tiles to give or
// a sandbox that does not let one ask.
bool forbid_arch_prctl() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = 4, .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

// Runs in a process of its own, which has not asked before.
[[noreturn]] void run_without_permission() {
  if (!forbid_arch_prctl()) std::exit(3);
  if (bf16_path_available(Bf16Path::kAmx)) std::exit(4);
  if (bf16_path() == Bf16Path::kAmx) std::exit(5);
  std::exit(attention_works() ? 0 : 6);
}

TEST(Bf16CpuDeathTest, ARefusedPermissionMeansTheNextPath) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_without_permission(), ::testing::ExitedWithCode(0), "");
}

TEST(Bf16Cpu, LeavesNoTileStateBehind) {
  if (!choose_bf16_path(Bf16Path::kAmx)) GTEST_SKIP() << "no AMX here";
  EXPECT_TRUE(attention_works());
  std::uint32_t low = 0, high = 0;
  // The states that are not in their initial configuration.
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  EXPECT_EQ(low >> 17 & 3u, 0u);
  choose_best_bf16_path();
}

#endif

}  // namespace
}  // namespace regard::kernels
