// Picks the instruction set. Compiled for any x86-64 processor.
#include "tiles.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace onechip {
namespace {

// __builtin_cpu_supports also asks the operating system (xgetbv) whether it keeps the wide registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512_vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_avx512_bf16() { return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16"); }

#ifdef ONECHIP_AMX

// Whether the processor has tiles and the system keeps them.
bool has_amx() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTile | kInt8;
  constexpr uint32_t kTileState = 3u << 17;  // XTILECFG and XTILEDATA
  unsigned a, b, c, d;
  if (!has_avx512_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAll) != kAll) return false;
  uint32_t low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

// Linux gives tiles to processes that ask, because all their threads then take 8 KB more to switch. It refuses where
// a thread's stack for signals is too small for that.
bool may_use_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool use_amx() {
  if (!has_amx() || !may_use_amx()) return false;
  if (same_products(kAmxTiles, kAvx512Bf16Tiles)) return true;
  std::fprintf(stderr, "onechip: AMX does not multiply as AVX-512 does on this processor; AVX-512 is used.\n");
  return false;
}

#endif

struct Candidate {
  const Tiles* tiles;
  bool (*usable)();
};

constexpr Candidate kCandidates[] = {
#ifdef ONECHIP_AMX
    {&kAmxTiles, use_amx},
#endif
    {&kAvx512Bf16Tiles, has_avx512_bf16},
    {&kAvx512VnniTiles, has_avx512_vnni},
    {&kAvx2Tiles, has_avx2},
};

const Tiles* pick() {
  __builtin_cpu_init();
  const char* asked = std::getenv("ONECHIP_CPU_ISA");
  bool allowed = true;
  for (const Candidate& set : kCandidates) allowed = allowed && !(asked && std::strcmp(asked, set.tiles->name) == 0);
  // An unknown or missing name asks for nothing; a known one shuts out what stands before it.
  for (const Candidate& set : kCandidates) {
    if (asked && std::strcmp(asked, set.tiles->name) == 0) allowed = true;
    if (allowed && set.usable()) return set.tiles;
  }
  return nullptr;
}

}  // namespace

const Tiles* tiles() {
  static const Tiles* const picked = pick();
  return picked;
}

}  // namespace onechip
