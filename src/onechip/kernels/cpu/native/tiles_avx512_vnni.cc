// AVX-512 with VNNI: Intel from Cascade Lake and Ice Lake on, AMD from Zen 4 on.
#include "tiles.h"

#include <string.h>

// What stands above is compiled for any processor, so that no inline function of it reaches others as AVX-512 code.
#define ONECHIP_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#include "tiles_target_push.h"

#include <immintrin.h>

namespace onechip {
namespace {

#include "tiles_512.h"

#include "tiles_table.h"

}  // namespace

const Tiles kAvx512VnniTiles = table<int8_product<QuantDot>, float_product<true>>("avx512_vnni");

}  // namespace onechip

#include "tiles_target_pop.h"
