// Rows of a table, such as embeddings: one lane of a panel each.
#include <bit>
#include <cstring>

#include "blocks.h"

namespace onechip {

namespace {

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, magnitude = half & 0x7fffu;
  // Subnormal halves are normal floats; through subnormal floats they would come out as zeros.
  const float value = magnitude < 0x400u ? static_cast<float>(magnitude) * 0x1p-24f
                                         : std::bit_cast<float>((magnitude << 13) + 0x38000000u);
  const uint32_t bits = magnitude < 0x7c00u ? std::bit_cast<uint32_t>(value) : 0x7f800000u | (magnitude & 0x3ffu) << 13;
  return std::bit_cast<float>(bits | sign);
}

float bf16_to_float(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

uint16_t word(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float group_scale(Scale kind, const uint8_t* scales, size_t group, size_t lane) {
  const uint16_t bits = word(scales + (group * kLanes + lane) * 2);
  return kind == Scale::kBf16 ? bf16_to_float(bits) : half_to_float(bits);
}

void bf16_block(const uint8_t* block, size_t lane, float* out) {
  for (size_t pair = 0; pair < kBlock / 2; ++pair) {
    const uint8_t* at = block + (pair * kLanes + lane) * 4;
    out[2 * pair] = bf16_to_float(word(at));
    out[2 * pair + 1] = bf16_to_float(word(at + 2));
  }
}

void int8_block(const uint8_t* block, Scale kind, size_t lane, float* out) {
  for (size_t group = 0; group < 2; ++group) {
    const float scale = group_scale(kind, block + 1024, group, lane);
    for (size_t quad = 0; quad < 8; ++quad) {
      const uint8_t* at = block + ((group * 8 + quad) * kLanes + lane) * 4;
      for (size_t j = 0; j < 4; ++j) out[group * kGroup + quad * 4 + j] = scale * static_cast<int8_t>(at[j]);
    }
  }
}

void int4_block(const uint8_t* block, Scale kind, size_t lane, float* out) {
  for (size_t group = 0; group < 2; ++group) {
    const float scale = group_scale(kind, block + 512, group, lane);
    for (size_t line = 0; line < 4; ++line) {
      const uint8_t* at = block + group * 256 + line * 64 + lane * 4;
      float* values = out + group * kGroup + line * 4;
      for (size_t j = 0; j < 4; ++j) {
        values[j] = scale * static_cast<float>((at[j] & 15) - 8);
        values[16 + j] = scale * static_cast<float>((at[j] >> 4) - 8);
      }
    }
  }
}

// Output `index` of the weight as float32, padded to whole blocks.
void read_row(const Linear& table, size_t index, float* out) {
  const Panels& panels = table.panels;
  const uint8_t* block = table.from(index / kLanes).data;
  const size_t lane = index % kLanes;
  for (size_t column = 0; column < panels.columns; column += kBlock, block += block_bytes(panels.kind)) {
    if (panels.kind == Weight::kBf16) bf16_block(block, lane, out + column);
    if (panels.kind == Weight::kInt8) int8_block(block, panels.scale, lane, out + column);
    if (panels.kind == Weight::kInt4) int4_block(block, panels.scale, lane, out + column);
  }
}

ffi::Error rows(ffi::Buffer<ffi::S32> tokens, ffi::AnyBuffer data, Live live, ffi::Result<ffi::AnyBuffer> result,
                WeightAttrs table_attrs) {
  return answer([&] {
    const Tiles& tiles = require_tiles();
    const Matrix out = as_matrix("the result", *result);
    const Linear table = as_linear("the table", data, table_attrs);
    check(!table_attrs.paired, "rows cannot be taken from a weight whose halves take turns");
    check(out.columns == table.inputs && out.rows == tokens.element_count(),
          "the result must have a row for each token and a column for each input of the table");
    // As JAX does, an index outside the table takes the nearest row.
    const int32_t last = static_cast<int32_t>(table.outputs) - 1;
    const size_t mattering = live_rows(live, out.rows);
    share(rows_cost_ns(mattering, out.columns), mattering, [&](size_t row) {
      float* wide = static_cast<float*>(scratch(kRow, table.panels.columns * sizeof(float)));
      read_row(table, static_cast<size_t>(std::clamp(tokens.typed_data()[row], 0, last)), wide);
      store(tiles, out.bf16, wide, out.columns, out.row(row));
    });
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipRows, rows,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::S32>>()  // tokens
                                  .Arg<ffi::AnyBuffer>()        // table
                                  .Arg<Live>()  // how many rows matter
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<WeightAttrs>("table"));

}  // namespace onechip
