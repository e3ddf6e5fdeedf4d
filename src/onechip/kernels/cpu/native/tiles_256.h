// 16 floats in two AVX2 registers, and the products of int8 activations by vpmaddubsw. No guard; included by
// tiles_avx2.cc inside its anonymous namespace.

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};
struct Mask {
  __m256 a, b;
};

[[gnu::always_inline]] inline F load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
[[gnu::always_inline]] inline F load_some(const float* at, size_t n) {
  alignas(32) float all[16] = {};
  memcpy(all, at, n * sizeof(float));
  return load(all);
}
[[gnu::always_inline]] inline void store(float* at, F x) {
  _mm256_storeu_ps(at, x.a);
  _mm256_storeu_ps(at + 8, x.b);
}
[[gnu::always_inline]] inline void store_some(float* at, size_t n, F x) {
  alignas(32) float all[16];
  store(all, x);
  memcpy(at, all, n * sizeof(float));
}
[[gnu::always_inline]] inline I load_int(const void* at) {
  const __m256i* half = static_cast<const __m256i*>(at);
  return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
[[gnu::always_inline]] inline void lanes(int32_t* at, I x) {
  __m256i* half = reinterpret_cast<__m256i*>(at);
  _mm256_storeu_si256(half, x.a);
  _mm256_storeu_si256(half + 1, x.b);
}
[[gnu::always_inline]] inline F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
[[gnu::always_inline]] inline I set_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
[[gnu::always_inline]] inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
[[gnu::always_inline]] inline F subtract(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
[[gnu::always_inline]] inline F multiply(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
[[gnu::always_inline]] inline F divide(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
[[gnu::always_inline]] inline F maximum(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
[[gnu::always_inline]] inline F minimum(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
[[gnu::always_inline]] inline F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
[[gnu::always_inline]] inline F fnma(F x, F y, F z) {
  return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
[[gnu::always_inline]] inline F nearest(F x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
[[gnu::always_inline]] inline I bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
[[gnu::always_inline]] inline F floats(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
[[gnu::always_inline]] inline I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
[[gnu::always_inline]] inline F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
[[gnu::always_inline]] inline I add_int(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
[[gnu::always_inline]] inline I subtract_int(I x, I y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
[[gnu::always_inline]] inline I subtract_int8(I x, I y) {
  return {_mm256_sub_epi8(x.a, y.a), _mm256_sub_epi8(x.b, y.b)};
}
[[gnu::always_inline]] inline I and_int(I x, I y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
[[gnu::always_inline]] inline I or_int(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
[[gnu::always_inline]] inline I max_unsigned(I x, I y) {
  return {_mm256_max_epu32(x.a, y.a), _mm256_max_epu32(x.b, y.b)};
}
template <int n>
[[gnu::always_inline]] inline I shift_left(I x) {
  return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
template <int n>
[[gnu::always_inline]] inline I shift_right(I x) {
  return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}
template <int n>
[[gnu::always_inline]] inline I shift_right_signed(I x) {
  return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}
[[gnu::always_inline]] inline Mask less(F x, F y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
[[gnu::always_inline]] inline F select(Mask mask, F x, F y) {
  return {_mm256_blendv_ps(y.a, x.a, mask.a), _mm256_blendv_ps(y.b, x.b, mask.b)};
}
[[gnu::always_inline]] inline I select(Mask mask, I x, I y) { return bits(select(mask, floats(x), floats(y))); }

// Two halves of eight 32-bit numbers that fit 16 bits, packed in order.
[[gnu::always_inline]] inline __m256i unsigned_words(I x) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8);
}
[[gnu::always_inline]] inline void store_int8(int8_t* at, I x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                   _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
[[gnu::always_inline]] inline F load_bf16(const uint16_t* at) {
  const __m128i* half = reinterpret_cast<const __m128i*>(at);
  const I words = {_mm256_cvtepu16_epi32(_mm_loadu_si128(half)), _mm256_cvtepu16_epi32(_mm_loadu_si128(half + 1))};
  return floats(shift_left<16>(words));
}
[[gnu::always_inline]] inline F load_bf16_some(const uint16_t* at, size_t n) {
  alignas(32) uint16_t all[16] = {};
  memcpy(all, at, n * sizeof(uint16_t));
  return load_bf16(all);
}
[[gnu::always_inline]] inline F load_half(const uint16_t* at) {
  const __m128i* half = reinterpret_cast<const __m128i*>(at);
  return {_mm256_cvtph_ps(_mm_loadu_si128(half)), _mm256_cvtph_ps(_mm_loadu_si128(half + 1))};
}
// The upper halves are bf16, to nearest even; NaN stays NaN.
[[gnu::always_inline]] inline I rounded_bits(F x) {
  const I u = bits(x), odd = and_int(shift_right<16>(u), set_int(1));
  const I near = add_int(add_int(u, set_int(0x7fff)), odd);
  const Mask is_nan = {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
  return select(is_nan, or_int(u, set_int(0x400000)), near);
}
[[gnu::always_inline]] inline F round_bf16(F x) {
  return floats(and_int(rounded_bits(x), set_int(static_cast<int32_t>(0xffff0000))));
}
[[gnu::always_inline]] inline void store_bf16(uint16_t* at, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), unsigned_words(shift_right<16>(rounded_bits(x))));
}
[[gnu::always_inline]] inline void store_bf16_some(uint16_t* at, size_t n, F x) {
  alignas(32) uint16_t all[16];
  store_bf16(all, x);
  memcpy(at, all, n * sizeof(uint16_t));
}

#include "tiles_elementwise.h"
#include "tiles_rows.h"

constexpr size_t kQuantRows = 4;

template <Weight W>
constexpr int32_t kOffset = W == Weight::kInt4 ? -8 : 0;

[[gnu::always_inline]] inline __m256i broadcast_quad(const int8_t* x) {
  int32_t quad;
  memcpy(&quad, x, sizeof quad);
  return _mm256_set1_epi32(quad);
}

// The whole numbers of eight outputs and one group of 32 activations.
template <Weight W>
[[gnu::always_inline]] inline __m256i dot_group(const __m256i (&q)[8], const int8_t* x, int32_t offset) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (W == Weight::kInt4) {
    // Pairs of products of 0..15 and -127..127; eight of them are at most 8 * 2 * 15 * 127 = 30,480: no overflow.
    __m256i pairs = _mm256_maddubs_epi16(q[0], broadcast_quad(x));
#pragma GCC unroll 8
    for (int s = 1; s < 8; s++)
      pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(q[s], broadcast_quad(x + 4 * s)));
    return _mm256_add_epi32(_mm256_set1_epi32(offset), _mm256_madd_epi16(pairs, ones));
  } else {
    // |w| times x with the sign of w; a pair is at most 2 * 128 * 127 = 32,512.
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int s = 0; s < 8; s++) {
      const __m256i signed_x = _mm256_sign_epi8(broadcast_quad(x + 4 * s), q[s]);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q[s]), signed_x);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
  }
}

template <Weight W>
[[gnu::always_inline]] inline void load_group(const uint8_t* w, __m256i (&q)[8]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  if constexpr (W == Weight::kInt4) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; s++) {
      const __m256i line = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 64 * s));
      q[s] = _mm256_and_si256(line, nibble);
      q[4 + s] = _mm256_and_si256(_mm256_srli_epi16(line, 4), nibble);
    }
  } else {
#pragma GCC unroll 8
    for (int s = 0; s < 8; s++) q[s] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 64 * s));
  }
}

// Eight of a panel's outputs over one block. Alone, so that eight registers of weights and R of sums are enough.
template <int R, Weight W, Scale S, class X>
[[gnu::always_inline]] inline void half_block(const uint8_t* w, int half, const X& x, __m256 (&sum)[R]) {
#pragma GCC unroll 2
  for (int g = 0; g < 2; g++) {
    const F scales = load_scales<S>(w + (block_bytes(W) - 64) + 32 * g);
    const __m256 scale = half == 0 ? scales.a : scales.b;
    __m256i q[8];
    load_group<W>(w + (block_bytes(W) - 64) / 2 * g + 32 * half, q);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      const __m256 whole = _mm256_cvtepi32_ps(dot_group<W>(q, x.values(r, g), x.offset(r, g)));
      sum[r] = _mm256_fmadd_ps(_mm256_mul_ps(whole, scale), _mm256_set1_ps(*x.scale(r, g)), sum[r]);
    }
  }
}

template <int R, int P, Weight W, Scale S, class X>
[[gnu::always_inline]] inline void quant_tile(const uint8_t* w, size_t panel_bytes, size_t blocks, X x, bool more,
                                              float* out, size_t out_stride) {
  if (!more)
    for (int r = 0; r < R; r++)
      for (int p = 0; p < P; p++) store(out + r * out_stride + p * kLanes, set(0.0f));
  for (size_t b = 0; b < blocks; b++, w += block_bytes(W), x.next_block()) {
#pragma GCC unroll 8
    for (int half = 0; half < 2 * P; half++) {  // of all panels
      __m256 sum[R];
      for (int r = 0; r < R; r++) sum[r] = _mm256_loadu_ps(out + r * out_stride + 8 * half);
      half_block<R, W, S>(w + half / 2 * panel_bytes, half % 2, x, sum);
      for (int r = 0; r < R; r++) _mm256_storeu_ps(out + r * out_stride + 8 * half, sum[r]);
    }
  }
}

#include "tiles_quant.h"

constexpr size_t kFloatRows = 4;

#include "tiles_float.h"
