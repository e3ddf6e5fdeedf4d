// What AVX-512's kinds of attention share. Included within an unnamed namespace, after <immintrin.h>.
#pragma once

#define ONECHIP_INLINE static inline __attribute__((always_inline))

ONECHIP_INLINE __m512 widen16(const uint16_t* bf16) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bf16));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// To bf16, nearest even; what is no number stays so.
ONECHIP_INLINE __m256i narrow16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc00000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}

struct Lanes16 {
  using V = __m512;
  static constexpr int kLanes = 16;
  static constexpr float kLowest = -104;

  ONECHIP_INLINE V zero() { return _mm512_setzero_ps(); }
  ONECHIP_INLINE V set(float x) { return _mm512_set1_ps(x); }
  ONECHIP_INLINE V load(const float* x) { return _mm512_load_ps(x); }
  ONECHIP_INLINE void store(float* out, V x) { _mm512_store_ps(out, x); }
  ONECHIP_INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
  ONECHIP_INLINE V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  ONECHIP_INLINE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  ONECHIP_INLINE V div(V a, V b) { return _mm512_div_ps(a, b); }
  ONECHIP_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  ONECHIP_INLINE V max(V a, V b) { return _mm512_max_ps(a, b); }
  ONECHIP_INLINE V round(V x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  ONECHIP_INLINE V times_power(V x, V n) { return _mm512_scalef_ps(x, n); }
  ONECHIP_INLINE float highest(V x) { return _mm512_reduce_max_ps(x); }
  ONECHIP_INLINE float sum(V x) { return _mm512_reduce_add_ps(x); }
  ONECHIP_INLINE float first(V x) { return _mm512_cvtss_f32(x); }

  // x in the lanes [first, last), other elsewhere.
  ONECHIP_INLINE V keep(V x, int first, int last, V other) {
    const unsigned below = last >= 16 ? 0xffffU : (1U << last) - 1;
    const unsigned from = first <= 0 ? 0U : (1U << first) - 1;
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(below & ~from), x);
  }

  // The sum of each of four vectors -> out[0..3].
  ONECHIP_INLINE void reduce4(V a, V b, V c, V d, float* out) {
    const V ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const V cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const V abcd = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
                                 _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    _mm_store_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }
};

struct Pair16 {
  __m512 low, high;
};

// Products in float32: of float32, or of bf16 that is widened as it is read.
struct Fma16 : Lanes16 {
  using Query = float;
  using Weight = float;
  using Key = __m512;
  static constexpr int kDepth = 16, kScored = 4, kPair = 1, kChunk = 32, kSummed = 8;

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
