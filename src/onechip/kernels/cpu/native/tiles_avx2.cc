// AVX2 with FMA and F16C: Intel from Haswell on, AMD from Zen on.
#include "tiles.h"

#include <string.h>

// What stands above is compiled for any processor, so that no inline function of it reaches others as AVX2 code.
#define ONECHIP_TARGET "avx2,fma,f16c"
#include "tiles_target_push.h"

#include <immintrin.h>

namespace onechip {
namespace {

#include "tiles_256.h"

#include "tiles_table.h"

}  // namespace

const Tiles kAvx2Tiles = table<int8_product<QuantDot>, float_product<true>>("avx2");

}  // namespace onechip

#include "tiles_target_pop.h"
