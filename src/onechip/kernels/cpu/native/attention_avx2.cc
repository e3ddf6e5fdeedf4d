// Attention with AVX2 and FMA in float32.
#include "attention.h"

#define ONECHIP_TARGET "avx2,fma,f16c"
#include "tiles_target_push.h"

#include <immintrin.h>

#include "attention_kernel.h"

namespace onechip {
namespace {

struct Pair8 {
  __m256 low, high;
};

struct Lanes8 {
  using V = __m256;
  using Query = float;
  using Weight = float;
  using Key = __m256;
  static constexpr int kLanes = 8, kDepth = 8, kScored = 2, kPair = 1, kChunk = 16, kSummed = 4;
  static constexpr float kLowest = -87.3F;

  ONECHIP_INLINE V zero() { return _mm256_setzero_ps(); }
  ONECHIP_INLINE V set(float x) { return _mm256_set1_ps(x); }
  ONECHIP_INLINE V load(const float* x) { return _mm256_load_ps(x); }
  ONECHIP_INLINE void store(float* out, V x) { _mm256_store_ps(out, x); }
  ONECHIP_INLINE V add(V a, V b) { return _mm256_add_ps(a, b); }
  ONECHIP_INLINE V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  ONECHIP_INLINE V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  ONECHIP_INLINE V div(V a, V b) { return _mm256_div_ps(a, b); }
  ONECHIP_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  ONECHIP_INLINE V max(V a, V b) { return _mm256_max_ps(a, b); }
  ONECHIP_INLINE V round(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  ONECHIP_INLINE V times_power(V x, V n) {
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(power));
  }
  ONECHIP_INLINE float first(V x) { return _mm256_cvtss_f32(x); }
  ONECHIP_INLINE float highest(V x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }
  ONECHIP_INLINE float sum(V x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }

  // x in the lanes [first, last), other elsewhere.
  ONECHIP_INLINE V keep(V x, int first, int last, V other) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                           _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane));
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(in));
  }

  // The sum of each of four vectors -> out[0..3].
  ONECHIP_INLINE void reduce4(V a, V b, V c, V d, float* out) {
    const V sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_store_ps(out, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
  }

  ONECHIP_INLINE V query(const float* x) { return load(x); }
  ONECHIP_INLINE V dot(V sum, V query, V key) { return fma(query, key, sum); }
  ONECHIP_INLINE V weight(const float* x) { return set(*x); }
  ONECHIP_INLINE V mac(V sum, V weight, V value) { return fma(weight, value, sum); }
  ONECHIP_INLINE float* weights_of(float* room, size_t) { return room; }
  ONECHIP_INLINE V put_weights(float* out, V x) {
    store(out, x);
    return x;
  }
};

struct F32 : Lanes8 {
  using Stored = float;
  ONECHIP_INLINE V rounded(V x) { return x; }
  ONECHIP_INLINE V key(const float* x) { return _mm256_loadu_ps(x); }
  ONECHIP_INLINE V key_tail(const float* x) { return key(x); }
  ONECHIP_INLINE Pair8 values(const float* row, const float*) { return {key(row), key(row + 8)}; }
  ONECHIP_INLINE Pair8 values_tail(const float* row, const float* next) { return values(row, next); }
  ONECHIP_INLINE void put_out(V low, V high, float* out, int) {
    _mm256_storeu_ps(out, low);
    _mm256_storeu_ps(out + 8, high);
  }
};

struct Bf16 : Lanes8 {
  using Stored = uint16_t;
  ONECHIP_INLINE V key(const uint16_t* x) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  ONECHIP_INLINE V key_tail(const uint16_t* x) { return key(x); }
  ONECHIP_INLINE Pair8 values(const uint16_t* row, const uint16_t*) { return {key(row), key(row + 8)}; }
  ONECHIP_INLINE Pair8 values_tail(const uint16_t* row, const uint16_t* next) { return values(row, next); }
  // To bf16, nearest even, in the upper half of each lane; what is no number stays so.
  ONECHIP_INLINE __m256i narrow(V x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), _mm256_castps_si256(nan)), 16);
  }
  ONECHIP_INLINE V rounded(V x) { return _mm256_castsi256_ps(_mm256_slli_epi32(narrow(x), 16)); }
  ONECHIP_INLINE void put_out(V low, V high, uint16_t* out, int) {
    const __m256i packed = _mm256_packus_epi32(narrow(low), narrow(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(packed, 0xd8));
  }
};

template <class Simd>
void turn(float* x, int width, const float* cos, const float* sin) {
  const int half = width / 2;
  for (int i = 0; i < half; i += 8) {
    const __m256 low = _mm256_loadu_ps(x + i), high = _mm256_loadu_ps(x + half + i);
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    const __m256 low_c = Simd::rounded(_mm256_mul_ps(low, c)), high_s = Simd::rounded(_mm256_mul_ps(high, s));
    const __m256 high_c = Simd::rounded(_mm256_mul_ps(high, c)), low_s = Simd::rounded(_mm256_mul_ps(low, s));
    _mm256_storeu_ps(x + i, Simd::rounded(_mm256_sub_ps(low_c, high_s)));
    _mm256_storeu_ps(x + half + i, Simd::rounded(_mm256_add_ps(high_c, low_s)));
  }
}

}  // namespace

void turn_bf16(float* x, int width, const float* cos, const float* sin) { turn<Bf16>(x, width, cos, sin); }
void turn_f32(float* x, int width, const float* cos, const float* sin) { turn<F32>(x, width, cos, sin); }

const AttentionKernels kAvx2AttentionF32 = kernels_of<F32>(false);
const AttentionKernels kAvx2AttentionBf16 = kernels_of<Bf16>(false);

}  // namespace onechip

#include "tiles_target_pop.h"
