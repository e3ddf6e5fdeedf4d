// Picks the instruction set. Compiled for any x86-64 processor.
#include "tiles.h"

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

const Tiles* pick() {
  __builtin_cpu_init();
  const struct {
    const Tiles* tiles;
    bool here;
  } sets[] = {
      {&kAvx512Bf16Tiles, has_avx512_bf16()},
      {&kAvx512VnniTiles, has_avx512_vnni()},
      {&kAvx2Tiles, has_avx2()},
  };
  const char* asked = std::getenv("ONECHIP_CPU_ISA");
  bool allowed = true;
  for (const auto& set : sets) allowed = allowed && !(asked && std::strcmp(asked, set.tiles->name) == 0);
  // An unknown or missing name asks for nothing; a known one shuts out what stands before it.
  for (const auto& set : sets) {
    if (asked && std::strcmp(asked, set.tiles->name) == 0) allowed = true;
    if (allowed && set.here) return set.tiles;
  }
  return nullptr;
}

}  // namespace

const Tiles* tiles() {
  static const Tiles* const picked = pick();
  return picked;
}

}  // namespace onechip
