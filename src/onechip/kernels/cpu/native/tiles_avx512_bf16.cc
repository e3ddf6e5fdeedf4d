// AVX-512 with VNNI and BF16: Intel from Cooper Lake and Sapphire Rapids on, AMD from Zen 4 on.
#include "tiles.h"

#include <string.h>

// What stands above is compiled for any processor, so that no inline function of it reaches others as AVX-512 code.
#define ONECHIP_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"
#include "tiles_target_push.h"

#include <immintrin.h>

namespace onechip {
namespace {

#include "tiles_512.h"

#include "tiles_expand.h"

#include "tiles_pairs.h"

#include "tiles_bf16.h"

#include "tiles_table.h"

}  // namespace

const Tiles kAvx512Bf16Tiles = table<int8_product<QuantDot>, bf16_product<Vdpbf16ps>>("avx512_bf16");

}  // namespace onechip

#include "tiles_target_pop.h"
