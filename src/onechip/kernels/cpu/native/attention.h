// Attention of queries to a block of keys, once for each instruction set: pure functions, without threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onechip {

// Keys are taken in blocks of fixed positions, [256 i, 256 i + 256), wherever they lie and whoever asks for them. So
// a query's sums are made in one order, however rows are cut into calls and tasks.
constexpr int kKeys = 256;

// A block's keys are computed in steps of this many; those in a step that nobody sees are given as zeros.
constexpr int kKeyStep = 16;

// Widths are padded to this: room for the last, half-filled step over a width that is an odd multiple of 16.
constexpr int kWidthStep = 32;

// Queries that are computed together; what one of them sees is read for all.
constexpr int kTogether = 8;

constexpr size_t kMostWidth = 1024;

constexpr int padded_width(int width) { return (width + kWidthStep - 1) / kWidthStep * kWidthStep; }

// Rows of one block, by position within the block; [first, last) of them are given, both multiples of kKeyStep.
struct KeyBlock {
  const void* keys[kKeys];    // each [width] as stored
  const void* values[kKeys];  // each [width] as stored
  int first, last;
  const void* const* next;  // kKeyStep rows of keys that come after this block, or null: they are fetched early
};

// Queries of one KV head. Each sees the keys [first[i], last[i]) of the block; none if first[i] >= last[i].
struct Queries {
  const void* values;  // [count, padded_width] as the kernels' `bf16_queries` says, zeros behind the width
  size_t count;
  int width;
  const int* first;
  const int* last;
};

// Softmax over some blocks before its division: out[i] = sum of exp(score - highest[i]) * value, total[i] the sum of
// those weights, 0 if nothing was seen. `out` is [count, padded_width] in an order of columns of the kernels' own.
struct Partial {
  float* out;
  float* highest;  // [count]
  float* total;    // [count]
};

constexpr float kNothing = -1e30F;  // `highest` where nothing was seen

struct AttentionKernels {
  bool bf16_queries;  // queries are bf16, otherwise float32

  // partial = the block alone. `room` is for temporaries: [2 * count, kKeys].
  void (*block)(const KeyBlock& block, const Queries& queries, float* room, const Partial& partial);

  // sum = sum and next, which stands behind it.
  void (*merge)(const Partial& sum, const Partial& next, size_t count, int width);

  // out [width] = partial.out[i] / partial.total[i], rounded once to the stored type.
  void (*finish)(const Partial& partial, size_t index, int width, void* out);
};

// x [width] float32 turned in place: pair i is (i, i + width / 2). Each product and each sum is rounded to bf16 if the
// activations are.
using Turn = void (*)(float* x, int width, const float* cos, const float* sin);

// With AVX2.
void turn_bf16(float* x, int width, const float* cos, const float* sin);
void turn_f32(float* x, int width, const float* cos, const float* sin);

extern const AttentionKernels kAvx2AttentionBf16, kAvx2AttentionF32;
extern const AttentionKernels kAvx512AttentionBf16, kAvx512AttentionF32;
extern const AttentionKernels kAvx512Bf16AttentionBf16;

}  // namespace onechip
