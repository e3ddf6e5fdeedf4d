// AMX's kernels as the library has them, but for the tiles, which are emulated.
#include <type_traits>

#include "test_tiles.h"

using std::memcpy, std::memset;

#define ONECHIP_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"
#include "tiles_target_push.h"

#include <immintrin.h>

namespace onechip {
namespace {

#include "tiles_512.h"

#include "tiles_expand.h"

#include "tiles_pairs.h"

#include "tiles_amx.h"

#include "amx_emulated.h"

#include "tiles_table.h"

}  // namespace

extern const Tiles kEmulatedAvx512 =
    table<int8_product<AmxDot<EmulatedTiles>>, bf16_product<AmxPairs<EmulatedTiles>>>("amx, emulated on AVX-512");

}  // namespace onechip

#include "tiles_target_pop.h"
