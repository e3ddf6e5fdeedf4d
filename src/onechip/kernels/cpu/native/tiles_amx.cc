// AMX: Intel from Sapphire Rapids on. All else is computed with AVX-512, as in tiles_avx512_bf16.cc.
#include "tiles.h"

#ifdef ONECHIP_AMX

#include <string.h>

#include <type_traits>

// What stands above is compiled for any processor, so that no inline function of it reaches others as AVX-512 code.
#define ONECHIP_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"
#include "tiles_target_push.h"

#include <immintrin.h>

namespace onechip {
namespace {

#include "tiles_512.h"

#include "tiles_expand.h"

#include "tiles_pairs.h"

#include "tiles_amx.h"

// In assembler, because gcc's own functions (12 to 15) do not say that tiles are loaded from memory: it drops or
// moves what was written there before. `memory` says so.
struct Amx {
  static void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config) : "memory"); }
  static void release() { asm volatile("tilerelease"); }

  template <int t>
  [[gnu::always_inline]] static inline void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(t));
  }
  template <int t>
  [[gnu::always_inline]] static inline void load(const void* at, size_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(t), "r"(at), "r"(stride) : "memory");
  }
  template <int t>
  [[gnu::always_inline]] static inline void store(void* at, size_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(t), "r"(at), "r"(stride) : "memory");
  }
  template <int c, int a, int b>
  [[gnu::always_inline]] static inline void dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  [[gnu::always_inline]] static inline void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
};

#include "tiles_table.h"

}  // namespace

const Tiles kAmxTiles = table<int8_product<AmxDot<Amx>>, bf16_product<AmxPairs<Amx>>>("amx");

}  // namespace onechip

#include "tiles_target_pop.h"

#endif  // ONECHIP_AMX
