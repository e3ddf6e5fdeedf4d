// Attention with AVX-512 in float32.
#include "attention.h"

#define ONECHIP_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"
#include "tiles_target_push.h"

// gcc 12 takes the undefined registers of its own header for a mistake (PR 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "attention_kernel.h"

namespace onechip {
namespace {

#include "attention_512.h"

struct F32 : Fma16 {
  using Stored = float;
  ONECHIP_INLINE V key(const float* x) { return _mm512_loadu_ps(x); }
  ONECHIP_INLINE V key_tail(const float* x) { return key(x); }
  ONECHIP_INLINE Pair16 values(const float* row, const float*) { return {key(row), key(row + 16)}; }
  ONECHIP_INLINE Pair16 values_tail(const float* row, const float*) { return {key(row), zero()}; }
  ONECHIP_INLINE void put_out(V low, V high, float* out, int left) {
    _mm512_storeu_ps(out, low);
    if (left > 16) _mm512_storeu_ps(out + 16, high);
  }
};

struct Bf16 : Fma16 {
  using Stored = uint16_t;
  ONECHIP_INLINE V key(const uint16_t* x) { return widen16(x); }
  ONECHIP_INLINE V key_tail(const uint16_t* x) { return key(x); }
  ONECHIP_INLINE Pair16 values(const uint16_t* row, const uint16_t*) { return {key(row), key(row + 16)}; }
  ONECHIP_INLINE Pair16 values_tail(const uint16_t* row, const uint16_t*) { return {key(row), zero()}; }
  ONECHIP_INLINE void put_out(V low, V high, uint16_t* out, int left) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), narrow16(low));
    if (left > 16) _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), narrow16(high));
  }
};

}  // namespace

const AttentionKernels kAvx512AttentionF32 = kernels_of<F32>(false);
const AttentionKernels kAvx512AttentionBf16 = kernels_of<Bf16>(false);

}  // namespace onechip

#include "tiles_target_pop.h"
