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

#include "tiles_bf16.h"

void product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
             size_t out_stride) {
  auto run = x.kind == Activation::kInt8   ? int8_product
             : x.kind == Activation::kBf16 ? bf16_product
                                           : float_product<false>;
  run(weight, count, x, first, rows, out, out_stride);
}

}  // namespace

const Tiles kAvx512Bf16Tiles = {
    "avx512_bf16", product,  to_bf16,    to_int8,    widen,   narrow,
    sum_squares,   scale_by, gelu_times, silu_times, softcap, argmax,
};

}  // namespace onechip

#include "tiles_target_pop.h"
