// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/cpu.h"

#include <atomic>
#include <cstdint>

#include "kernels/bf16/paths.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace regard::kernels {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros for a leaf that the processor does not have.
Registers cpuid(unsigned leaf, unsigned sub) {
  Registers r;
  if (__get_cpuid_count(leaf, sub, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) {
    return {};
  }
  return r;
}

constexpr bool has_bit(std::uint64_t word, int bit) {
  return (word >> bit & 1) != 0;
}

// The register states that the operating system saves, or 0 where it says
// nothing.
std::uint64_t saved_states() {
  if (!has_bit(cpuid(1, 0).ecx, 27)) return 0;  // OSXSAVE: xgetbv may be used
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

bool detect_avx512() {
  constexpr std::uint64_t kStates = 0xe6;  // SSE, AVX, and the three of AVX-512
  if ((saved_states() & kStates) != kStates) return false;
  const Registers leaf7 = cpuid(7, 0);
  // F, DQ, BW, VL
  return has_bit(leaf7.ebx, 16) && has_bit(leaf7.ebx, 17) &&
         has_bit(leaf7.ebx, 30) && has_bit(leaf7.ebx, 31);
}

bool cpu_has_tiles() {
  const Registers leaf7 = cpuid(7, 0);
  return has_bit(leaf7.edx, 22) && has_bit(leaf7.edx, 24);  // BF16, TILE
}

// Linux gives a process its tile registers only when asked. A kernel that does
// not know the question, or a sandbox that forbids it, answers with an error.
bool tiles_permitted() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool detect_amx() {
  constexpr std::uint64_t kTileStates = 3u << 17;  // XTILECFG and XTILEDATA
  return detect_avx512() && cpu_has_tiles() &&
         (saved_states() & kTileStates) == kTileStates && tiles_permitted();
}

bool detect_dot() { return detect_avx512() && has_bit(cpuid(7, 1).eax, 5); }

#else

bool detect_amx() { return false; }
bool detect_dot() { return false; }
bool cpu_has_tiles() { return false; }

#endif  // __x86_64__

Bf16Path best_path() {
  if (bf16_path_available(Bf16Path::kAmx)) return Bf16Path::kAmx;
  // Cores with tiles do VDPBF16PS every second cycle only: 32 flops a cycle,
  // where fp32 multiply-adds do 64. Where such a core's tiles are refused, fp32
  // is the faster way.
  static const bool dot_is_fast = !cpu_has_tiles();
  if (dot_is_fast && bf16_path_available(Bf16Path::kDot)) {
    return Bf16Path::kDot;
  }
  return Bf16Path::kPortable;
}

constexpr int kBest = -1;
std::atomic<int> chosen{kBest};

}  // namespace

bool bf16_path_available(Bf16Path path) {
  static const bool amx = bf16_amx_functions() != nullptr && detect_amx();
  static const bool dot = bf16_dot_functions() != nullptr && detect_dot();
  switch (path) {
    case Bf16Path::kAmx:
      return amx;
    case Bf16Path::kDot:
      return dot;
    case Bf16Path::kPortable:
      return true;
  }
  return false;
}

Bf16Path bf16_path() {
  const int path = chosen.load(std::memory_order_relaxed);
  return path == kBest ? best_path() : static_cast<Bf16Path>(path);
}

bool choose_bf16_path(Bf16Path path) {
  if (!bf16_path_available(path)) return false;
  chosen = static_cast<int>(path);
  return true;
}

void choose_best_bf16_path() { chosen = kBest; }

const Bf16Functions& bf16_functions() {
  switch (bf16_path()) {
    case Bf16Path::kAmx:
      return *bf16_amx_functions();
    case Bf16Path::kDot:
      return *bf16_dot_functions();
    case Bf16Path::kPortable:
      break;
  }
  return bf16_portable_functions();
}

}  // namespace regard::kernels
