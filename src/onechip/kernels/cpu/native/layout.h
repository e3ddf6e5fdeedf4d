// How weights and activations lie in memory, for all that multiply them. kernels/cpu/weights.py packs and describes the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onechip {

// A weight [out, in] is cut into panels of 16 outputs, a panel into blocks of 64 inputs. Outputs and inputs that
// fill up the last panel and block are zeros. Panels lie one behind the other, blocks too.
//
//   bf16  2,048 bytes: 32 pairs of inputs; of each pair 16 lanes (outputs) of two bf16, the lower input first
//   int8  1,088 bytes: 16 quads of inputs; of each quad 16 lanes of four int8; then 2 groups x 16 scales
//   int4    576 bytes: 2 groups of 256 bytes; then 2 groups x 16 scales
//           A group is 4 lines of 64 bytes: byte 4 * lane + j of line s holds in its low nibble input 4 * s + j, in
//           its high nibble input 16 + 4 * s + j of the group, both as q + 8.
//
// Scales are 16 bits each, one for 32 inputs of one output: bfloat16 or IEEE half, as the checkpoint has them.
constexpr int kLanes = 16;
constexpr int kBlock = 64;
constexpr int kGroup = 32;

enum class Weight : int32_t { kBf16 = 0, kInt8 = 1, kInt4 = 2 };
enum class Scale : int32_t { kBf16 = 0, kHalf = 1 };

constexpr size_t block_bytes(Weight kind) {
  return kind == Weight::kBf16 ? 2048 : kind == Weight::kInt8 ? 1088 : 576;
}

// Rows of activations as a product reads them. Columns are padded with zeros to whole blocks; a row begins at a
// multiple of 64 bytes.
//
//   f32   columns floats
//   bf16  columns of 16 bits
//   int8  columns int8, q = round(x / scale) of 32 columns with scale = max|x| / 127; scales: columns / 32 floats;
//         sums: columns / 32 int32, the sum of the group's q
enum class Activation : int32_t { kF32 = 0, kBf16 = 1, kInt8 = 2 };

struct Rows {
  Activation kind;
  const void* values;   // [rows, columns]
  const float* scales;  // [rows, columns / 32], int8 only
  const int32_t* sums;  // [rows, columns / 32], int8 only
  size_t columns;       // a multiple of 64
};

// Some panels of one weight.
struct Panels {
  Weight kind;
  Scale scale;
  const uint8_t* data;  // 64-byte aligned, [panels, columns / 64, block_bytes]
  size_t columns;       // a multiple of 64

  size_t panel_bytes() const { return columns / kBlock * block_bytes(kind); }
};

}  // namespace onechip
