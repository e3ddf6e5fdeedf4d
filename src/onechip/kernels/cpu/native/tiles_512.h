// 16 floats in one AVX-512 register, and the products of int8 activations by vpdpbusd. No guard; included by the
// AVX-512 files inside their anonymous namespaces.

using F = __m512;
using I = __m512i;
using Mask = __mmask16;

[[gnu::always_inline]] inline Mask first_lanes(size_t n) { return static_cast<Mask>((1u << n) - 1); }
[[gnu::always_inline]] inline F load(const float* at) { return _mm512_loadu_ps(at); }
[[gnu::always_inline]] inline F load_some(const float* at, size_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), at);
}
[[gnu::always_inline]] inline void store(float* at, F x) { _mm512_storeu_ps(at, x); }
[[gnu::always_inline]] inline void store_some(float* at, size_t n, F x) {
  _mm512_mask_storeu_ps(at, first_lanes(n), x);
}
[[gnu::always_inline]] inline I load_int(const void* at) { return _mm512_loadu_si512(at); }
[[gnu::always_inline]] inline void lanes(int32_t* at, I x) { _mm512_storeu_si512(at, x); }
[[gnu::always_inline]] inline void store_int8(int8_t* at, I x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_maskz_cvtepi32_epi8(0xffff, x));
}
[[gnu::always_inline]] inline F set(float x) { return _mm512_set1_ps(x); }
[[gnu::always_inline]] inline I set_int(int32_t x) { return _mm512_set1_epi32(x); }
[[gnu::always_inline]] inline F add(F a, F b) { return _mm512_add_ps(a, b); }
[[gnu::always_inline]] inline F subtract(F a, F b) { return _mm512_sub_ps(a, b); }
[[gnu::always_inline]] inline F multiply(F a, F b) { return _mm512_mul_ps(a, b); }
[[gnu::always_inline]] inline F divide(F a, F b) { return _mm512_div_ps(a, b); }
[[gnu::always_inline]] inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
[[gnu::always_inline]] inline F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
// Masked forms below: gcc 12 warns about the undefined source of the plain ones.
[[gnu::always_inline]] inline F maximum(F a, F b) { return _mm512_maskz_max_ps(0xffff, a, b); }
[[gnu::always_inline]] inline F minimum(F a, F b) { return _mm512_maskz_min_ps(0xffff, a, b); }
[[gnu::always_inline]] inline F nearest(F x) {
  return _mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
[[gnu::always_inline]] inline I bits(F x) { return _mm512_castps_si512(x); }
[[gnu::always_inline]] inline F floats(I x) { return _mm512_castsi512_ps(x); }
[[gnu::always_inline]] inline I to_int(F x) { return _mm512_maskz_cvtps_epi32(0xffff, x); }
[[gnu::always_inline]] inline F to_float(I x) { return _mm512_maskz_cvtepi32_ps(0xffff, x); }
[[gnu::always_inline]] inline I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
[[gnu::always_inline]] inline I subtract_int(I a, I b) { return _mm512_sub_epi32(a, b); }
[[gnu::always_inline]] inline I subtract_int8(I a, I b) { return _mm512_sub_epi8(a, b); }
[[gnu::always_inline]] inline I and_int(I a, I b) { return _mm512_and_si512(a, b); }
[[gnu::always_inline]] inline I or_int(I a, I b) { return _mm512_or_si512(a, b); }
[[gnu::always_inline]] inline I max_unsigned(I a, I b) { return _mm512_maskz_max_epu32(0xffff, a, b); }
template <int n>
[[gnu::always_inline]] inline I shift_left(I x) {
  return _mm512_maskz_slli_epi32(0xffff, x, n);
}
template <int n>
[[gnu::always_inline]] inline I shift_right(I x) {
  return _mm512_maskz_srli_epi32(0xffff, x, n);
}
template <int n>
[[gnu::always_inline]] inline I shift_right_signed(I x) {
  return _mm512_maskz_srai_epi32(0xffff, x, n);
}
[[gnu::always_inline]] inline Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
[[gnu::always_inline]] inline F select(Mask mask, F a, F b) { return _mm512_mask_blend_ps(mask, b, a); }
[[gnu::always_inline]] inline I select(Mask mask, I a, I b) { return _mm512_mask_blend_epi32(mask, b, a); }

[[gnu::always_inline]] inline F widened(__m256i bf16) {
  return floats(shift_left<16>(_mm512_maskz_cvtepu16_epi32(0xffff, bf16)));
}
[[gnu::always_inline]] inline F load_bf16(const uint16_t* at) {
  return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
[[gnu::always_inline]] inline F load_bf16_some(const uint16_t* at, size_t n) {
  return widened(_mm256_maskz_loadu_epi16(first_lanes(n), at));
}
[[gnu::always_inline]] inline F load_half(const uint16_t* at) {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
// The upper halves are bf16, to nearest even; NaN stays NaN. vcvtneps2bf16 would take subnormal numbers for zeros.
[[gnu::always_inline]] inline I rounded_bits(F x) {
  I u = bits(x), odd = and_int(shift_right<16>(u), set_int(1));
  I near = add_int(add_int(u, set_int(0x7fff)), odd);
  Mask is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return select(is_nan, or_int(u, set_int(0x400000)), near);
}
[[gnu::always_inline]] inline F round_bf16(F x) {
  return floats(and_int(rounded_bits(x), set_int(static_cast<int32_t>(0xffff0000))));
}
[[gnu::always_inline]] inline __m256i narrowed(F x) {
  return _mm512_maskz_cvtepi32_epi16(0xffff, shift_right<16>(rounded_bits(x)));
}
[[gnu::always_inline]] inline void store_bf16(uint16_t* at, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), narrowed(x));
}
[[gnu::always_inline]] inline void store_bf16_some(uint16_t* at, size_t n, F x) {
  _mm256_mask_storeu_epi16(at, first_lanes(n), narrowed(x));
}

#include "tiles_elementwise.h"
#include "tiles_rows.h"

// sum + the products of 16 x 4 unsigned weights with the four activations at `x`.
[[gnu::always_inline]] inline I dot(I sum, I weights, const int8_t* x) {
  typedef int32_t __attribute__((may_alias, aligned(1))) Quad;
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
  return _mm512_dpbusd_epi32(sum, weights, set_int(*reinterpret_cast<const Quad*>(x)));
#else
  // gcc 12 does not fold the broadcast into the instruction by itself; clang does.
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weights), "m"(*reinterpret_cast<const Quad*>(x)));
  return sum;
#endif
}

// 8 rows of int4 from memory went from 9.9 to 12.1 GB/s, the speed from the cache; one row is faster without (33
// against 32).
template <Weight W>
[[gnu::always_inline]] inline void prefetch_block(const uint8_t* w) {
  constexpr size_t kAhead = 9216;
  for (size_t line = 0; line < block_bytes(W); line += 64) prefetch(reinterpret_cast<uintptr_t>(w) + kAhead + line);
}

constexpr size_t kQuantRows = 12;

template <Weight W>
constexpr int32_t kOffset = W == Weight::kInt4 ? -8 : -128;

// R rows times one block of one panel.
template <int R, Weight W, Scale S, class X>
[[gnu::always_inline]] inline void quant_block(const uint8_t* w, const X& x, F (&sum)[R]) {
  const I nibble = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(-128);
#pragma GCC unroll 2
  for (int g = 0; g < 2; g++) {
    I q[8];
    if constexpr (W == Weight::kInt4) {
#pragma GCC unroll 4
      for (int s = 0; s < 4; s++) {
        const I line = load_int(w + 256 * g + 64 * s);
        q[s] = and_int(line, nibble);
        q[4 + s] = and_int(_mm512_srli_epi16(line, 4), nibble);
      }
    } else {
#pragma GCC unroll 8
      for (int s = 0; s < 8; s++) q[s] = _mm512_xor_si512(load_int(w + 512 * g + 64 * s), sign);
    }
    const F scale = load_scales<S>(w + (block_bytes(W) - 64) + 32 * g);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      I whole = set_int(x.offset(r, g));
#pragma GCC unroll 8
      for (int s = 0; s < 8; s++) whole = dot(whole, q[s], x.values(r, g) + 4 * s);
      sum[r] = fma(multiply(to_float(whole), scale), set(*x.scale(r, g)), sum[r]);
    }
  }
}

template <int R, int P, Weight W, Scale S, class X>
[[gnu::always_inline]] inline void quant_tile(const uint8_t* w, size_t panel_bytes, size_t blocks, X x, bool more,
                                              float* out, size_t out_stride) {
  F sum[P][R];
  for (int p = 0; p < P; p++)
    for (int r = 0; r < R; r++) sum[p][r] = start_of(more, out + r * out_stride + p * kLanes);
  for (size_t b = 0; b < blocks; b++, w += block_bytes(W), x.next_block()) {
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) {
      if constexpr (R > 1) prefetch_block<W>(w + p * panel_bytes);
      quant_block<R, W, S>(w + p * panel_bytes, x, sum[p]);
    }
  }
  for (int p = 0; p < P; p++)
    for (int r = 0; r < R; r++) store(out + r * out_stride + p * kLanes, sum[p][r]);
}

#include "tiles_quant.h"

constexpr size_t kFloatRows = 12;

#include "tiles_float.h"
