// AMX's kernels with all that surrounds the tiles in AVX2, for processors without AVX-512.
#include <type_traits>

#include "test_tiles.h"

using std::memcpy, std::memset;

#define ONECHIP_TARGET "avx2,fma,f16c"
#include "tiles_target_push.h"

#include <immintrin.h>

namespace onechip {
namespace {

#include "tiles_256.h"

// As tiles_expand.h: the float32 values of tiles_float.h, two to a pair.
template <Weight W, Scale S>
void expand_block(const uint8_t* w, uintptr_t next, uint8_t* out) {
  float values[kBlock][kLanes];
  widen_block<W, S, true>(w, next, values[0]);
  for (int input = 0; input < kBlock; input++)
    for (int lane = 0; lane < kLanes; lane++) {
      const uint16_t half = ::to_bf16(values[input][lane]);
      memcpy(out + input / 2 * 64 + lane * 4 + input % 2 * 2, &half, 2);
    }
}

#include "tiles_pairs.h"

#include "tiles_amx.h"

#include "amx_emulated.h"

#include "tiles_table.h"

}  // namespace

extern const Tiles kEmulatedAvx2 =
    table<int8_product<AmxDot<EmulatedTiles>>, bf16_product<AmxPairs<EmulatedTiles>>>("amx, emulated on AVX2");

}  // namespace onechip

#include "tiles_target_pop.h"
