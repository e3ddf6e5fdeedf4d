// Rows on their way into a product (norm, rounding) and out of it (norm, residual, rounding).
#include <cmath>
#include <cstring>

#include "blocks.h"

namespace onechip {

namespace {

constexpr size_t kPiece = 512;  // values that are rounded at a time, on the stack

void apply(const Tiles& tiles, const Norm& norm, float* x, size_t columns) {
  const float mean = tiles.sum_squares(x, columns) / static_cast<float>(columns);
  const float factor = 1.0f / std::sqrt(mean + norm.eps);
  tiles.scale_by(x, columns, factor, norm.weight, norm.weight_is_bf16, norm.offset, x);
}

size_t value_bytes(Activation kind) { return kind == Activation::kF32 ? 4 : kind == Activation::kBf16 ? 2 : 1; }

}  // namespace

Inputs::Inputs(Slot slot, Activation kind, size_t rows, size_t columns) {
  columns = (columns + kBlock - 1) / kBlock * kBlock;
  const bool grouped = kind == Activation::kInt8;
  const size_t values = rows * columns * value_bytes(kind), groups = grouped ? rows * columns / kGroup : 0;
  uint8_t* memory = static_cast<uint8_t*>(scratch(slot, values + groups * (sizeof(float) + sizeof(int32_t))));
  rows_ = {kind, memory, nullptr, nullptr, columns};
  if (grouped) {
    rows_.scales = reinterpret_cast<const float*>(memory + values);
    rows_.sums = reinterpret_cast<const int32_t*>(memory + values + groups * sizeof(float));
  }
}

void Inputs::put(const Tiles& tiles, size_t row, size_t column, const float* x, size_t count) const {
  const size_t at = row * rows_.columns + column;
  // The memory is scratch of ours: Rows has it const for those who read it.
  uint8_t* values = static_cast<uint8_t*>(const_cast<void*>(rows_.values)) + at * value_bytes(rows_.kind);
  if (rows_.kind == Activation::kInt8) {
    tiles.to_int8(x, count, reinterpret_cast<int8_t*>(values), const_cast<float*>(rows_.scales) + at / kGroup,
                  const_cast<int32_t*>(rows_.sums) + at / kGroup);
  } else if (rows_.kind == Activation::kBf16) {
    tiles.to_bf16(x, count, reinterpret_cast<uint16_t*>(values));
  } else {
    const size_t padded = (count + kBlock - 1) / kBlock * kBlock;
    std::memcpy(values, x, count * sizeof(float));
    std::memset(values + count * sizeof(float), 0, (padded - count) * sizeof(float));
  }
}

Activation meets(const Linear& weight, bool bf16) {
  if (weight.panels.kind != Weight::kBf16 && !weight.exact) return Activation::kInt8;
  return bf16 ? Activation::kBf16 : Activation::kF32;
}

void round_to(const Tiles& tiles, bool bf16, float* x, size_t count) {
  if (!bf16) return;
  uint16_t narrow[kPiece];
  for (size_t at = 0; at < count; at += kPiece) {
    const size_t piece = std::min(kPiece, count - at);
    tiles.narrow(x + at, piece, narrow);
    tiles.widen(narrow, piece, x + at);
  }
}

const float* load(const Tiles& tiles, bool bf16, const void* x, size_t count, float* buffer) {
  if (!bf16) return static_cast<const float*>(x);
  tiles.widen(static_cast<const uint16_t*>(x), count, buffer);
  return buffer;
}

void store(const Tiles& tiles, bool bf16, const float* x, size_t count, void* out) {
  if (bf16) {
    tiles.narrow(x, count, static_cast<uint16_t*>(out));
  } else {
    std::memcpy(out, x, count * sizeof(float));
  }
}

Inputs prepare(const Tiles& tiles, const Matrix& x, size_t first, size_t rows, const Norm& norm,
               const Linear& weight) {
  check(x.columns == weight.inputs, "activations of " + std::to_string(x.columns) +
                                        " columns cannot meet a weight of " + std::to_string(weight.inputs) +
                                        " inputs");
  const Inputs inputs(kInputs, meets(weight, x.bf16), rows, x.columns);
  share(rows_cost_ns(rows, x.columns), rows, [&](size_t row) {
    float* wide = static_cast<float*>(scratch(kRow, x.columns * sizeof(float)));
    const float* values = load(tiles, x.bf16, x.row(first + row), x.columns, wide);
    if (norm.present) {
      if (values != wide) std::memcpy(wide, values, x.columns * sizeof(float));
      apply(tiles, norm, wide, x.columns);
      round_to(tiles, x.bf16 && inputs.rows().kind == Activation::kInt8, wide, x.columns);
      values = wide;
    }
    inputs.put(tiles, row, 0, values, x.columns);
  });
  return inputs;
}

void finish(const Tiles& tiles, float* product, size_t stride, size_t first, size_t rows, const Ending& ending) {
  const Matrix& out = ending.out;
  check(ending.residual.rows == out.rows && ending.residual.columns == out.columns &&
            ending.residual.bf16 == out.bf16,
        "the residual must have the shape and dtype of the result");
  share(rows_cost_ns(rows, out.columns), rows, [&](size_t row) {
    float* x = product + row * stride;
    round_to(tiles, out.bf16, x, out.columns);
    if (ending.norm.present) {
      apply(tiles, ending.norm, x, out.columns);
      round_to(tiles, out.bf16, x, out.columns);
    }
    float* wide = static_cast<float*>(scratch(kRow, out.columns * sizeof(float)));
    const float* residual = load(tiles, out.bf16, ending.residual.row(first + row), out.columns, wide);
    for (size_t column = 0; column < out.columns; ++column) x[column] += residual[column];
    if (ending.scalar != nullptr) {
      round_to(tiles, out.bf16, x, out.columns);
      for (size_t column = 0; column < out.columns; ++column) x[column] *= *ending.scalar;
    }
    store(tiles, out.bf16, x, out.columns, out.row(first + row));
  });
}

}  // namespace onechip
