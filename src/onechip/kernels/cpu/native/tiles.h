// The arithmetic, once for each instruction set: pure functions on rows and panels, without threads.
#pragma once

#include "layout.h"

namespace onechip {

// Whatever the instruction set and however many rows or panels are computed at once, out[r, n] is summed in the same
// order: with int8 activations float32 sums group by group of an exact integer times (scale of the weight), then times
// (scale of the row), by one fused multiply-add; so all instruction sets agree to the bit there. Otherwise an order
// that each instruction set fixes by itself.
struct Tiles {
  const char* name;  // "amx", "avx512_bf16", "avx512_vnni", "avx2"

  // out[r * out_stride + 16 * p + lane] = row (first + r) times output (16 * p + lane), for r < rows, p < count.
  // Any kind of activation with any kind of weight, but int8 activations with bf16 weights. Int4 and int8 weights
  // meet bf16 activations as bf16 values (q * scale rounded once), float32 ones as float32 values.
  void (*product)(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                  size_t out_stride);

  // Rows for `product` from float32; `columns` is padded up to whole blocks with zeros by the callee.
  void (*to_bf16)(const float* x, size_t columns, uint16_t* values);
  void (*to_int8)(const float* x, size_t columns, int8_t* values, float* scales, int32_t* sums);

  void (*widen)(const uint16_t* bf16, size_t count, float* out);          // bf16 -> float32
  void (*narrow)(const float* x, size_t count, uint16_t* out);            // float32 -> bf16, nearest even
  float (*sum_squares)(const float* x, size_t count);                     // in an order fixed by `count` alone
  // out = x * factor * (weight + offset), the weight bf16 or float32 or missing (null).
  void (*scale_by)(const float* x, size_t count, float factor, const void* weight, bool weight_is_bf16, float offset,
                   float* out);
  void (*gelu_times)(const float* gate, const float* up, size_t count, float* out);  // gelu_tanh(gate) * up
  void (*silu_times)(const float* gate, const float* up, size_t count, float* out);  // silu(gate) * up
  void (*softcap)(float* x, size_t count, float cap);                     // cap * tanh(x / cap), in place
  // Index of the first of the largest, `best` its value; -1 if nothing is larger than -inf.
  int64_t (*argmax)(const float* x, size_t count, float* best);
};

// The best that this processor has; nullptr if it lacks AVX2, FMA or F16C. The environment variable
// ONECHIP_CPU_ISA (avx2, avx512_vnni, avx512_bf16) asks for less, for tests.
const Tiles* tiles();

// Whether int4 and bf16 products of one row and of some give the same bits. Their numbers are chosen so that float32
// sums of bf16 are exact in any order: two instruction sets that work agree.
bool same_products(const Tiles& one, const Tiles& other);

// Assemblers know AMX since binutils 2.35; older compilers, which come with older ones, do without.
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define ONECHIP_AMX 1
extern const Tiles kAmxTiles;
#endif

extern const Tiles kAvx2Tiles;
extern const Tiles kAvx512VnniTiles;
extern const Tiles kAvx512Bf16Tiles;

}  // namespace onechip
