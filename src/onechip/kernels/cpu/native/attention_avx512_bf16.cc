// Attention with AVX-512's products of pairs of bf16: queries and softmax weights are rounded to bf16, sums are float32.
#include "attention.h"

#define ONECHIP_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"
#include "tiles_target_push.h"

// gcc 12 takes the undefined registers of its own header for a mistake (PR 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "attention_kernel.h"

namespace onechip {
namespace {

#include "attention_512.h"

ONECHIP_INLINE __m512i load32(const uint16_t* x) { return _mm512_loadu_si512(x); }
ONECHIP_INLINE __m512i load_half(const uint16_t* x) {
  return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}

struct Dot : Lanes16 {
  using Stored = uint16_t;
  using Query = uint16_t;
  using Weight = uint16_t;
  using Key = __m512bh;
  static constexpr int kDepth = 32, kScored = 4, kPair = 2, kChunk = 32, kSummed = 8;

  struct Pairs {
    __m512bh low, high;
  };

  ONECHIP_INLINE Key query(const uint16_t* x) { return (Key)load32(x); }
  ONECHIP_INLINE Key key(const uint16_t* x) { return (Key)load32(x); }
  ONECHIP_INLINE Key key_tail(const uint16_t* x) { return (Key)load_half(x); }
  ONECHIP_INLINE V dot(V sum, Key query, Key key) { return _mm512_dpbf16_ps(sum, query, key); }

  // Two rows interleaved, by quarters of a vector: columns 0-3 of each eight are `low`, 4-7 `high`.
  ONECHIP_INLINE Pairs interleave(__m512i row, __m512i next) {
    return {(Key)_mm512_unpacklo_epi16(row, next), (Key)_mm512_unpackhi_epi16(row, next)};
  }
  ONECHIP_INLINE Pairs values(const uint16_t* row, const uint16_t* next) {
    return interleave(load32(row), load32(next));
  }
  ONECHIP_INLINE Pairs values_tail(const uint16_t* row, const uint16_t* next) {
    return interleave(load_half(row), load_half(next));
  }
  ONECHIP_INLINE Key weight(const uint16_t* x) {
    int two;
    __builtin_memcpy(&two, x, sizeof two);
    return (Key)_mm512_set1_epi32(two);
  }
  ONECHIP_INLINE V mac(V sum, Key weight, Key value) { return _mm512_dpbf16_ps(sum, weight, value); }

  ONECHIP_INLINE uint16_t* weights_of(float* room, size_t count) {
    return reinterpret_cast<uint16_t*>(room + count * kKeys);
  }
  ONECHIP_INLINE V put_weights(uint16_t* out, V x) {
    const __m256i bits = (__m256i)_mm512_cvtneps_pbh(x);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  ONECHIP_INLINE void put_out(V low, V high, uint16_t* out, int left) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), narrow16(_mm512_permutex2var_ps(low, first, high)));
    if (left > 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), narrow16(_mm512_permutex2var_ps(low, second, high)));
  }
};

}  // namespace

const AttentionKernels kAvx512Bf16AttentionBf16 = kernels_of<Dot>(true);

}  // namespace onechip

#include "tiles_target_pop.h"
