// One call of attention: its arguments, the rows as runs of one slot each, and its two halves.
#pragma once

#include <vector>

#include "attention.h"
#include "blocks.h"

namespace onechip {

// What Python says of a layer (kernels/api.py: HeadSpec).
struct HeadAttrs {
  int32_t heads;
  int32_t kv_heads;
  int32_t window;
  bool owns_kv;
  bool k_eq_v;
  float q_scale;
};

// Rows of one slot at consecutive positions, all of them active.
struct Run {
  size_t first;     // row
  size_t rows;
  size_t slot;
  size_t position;  // of the first row
  bool fresh;       // its keys go to the cache only after attention, since its rows still see what they replace
};

struct Call {
  const Tiles& tiles;
  const AttentionKernels& kernels;
  Turn turn;

  size_t heads, kv_heads, width;
  size_t window;  // 0 for a span
  bool owns_kv, k_eq_v, bf16;
  float q_scale;
  Norm q_norm, k_norm, v_norm;

  size_t rows, slots, length;   // length: positions of the cache, the window or the capacity
  const uint8_t* qkv;           // [rows, columns]
  size_t columns;
  const float *cos, *sin;       // [rows, width / 2]
  uint8_t *k, *v;               // [slots, kv_heads, length, width]
  uint8_t* out;                 // [rows, heads, width]

  std::vector<Run> runs;
  uint8_t* queries;             // [kv_heads, rows, group, padded_width], as the kernels want them
  uint8_t *fresh_k, *fresh_v;   // [rows, kv_heads, width], of runs that are fresh

  size_t group() const { return heads / kv_heads; }
  size_t row_bytes() const { return width * (bf16 ? 2 : 4); }
  size_t padded() const { return static_cast<size_t>(padded_width(static_cast<int>(width))); }
  size_t query_bytes() const { return padded() * (kernels.bf16_queries ? 2 : 4); }

  size_t place(size_t position) const { return window ? position % window : position; }
  uint8_t* cached(uint8_t* cache, size_t slot, size_t kv_head, size_t place) const {
    return cache + ((slot * kv_heads + kv_head) * length + place) * row_bytes();
  }
  uint8_t* fresh(uint8_t* rows_of, size_t row, size_t kv_head) const {
    return rows_of + (row * kv_heads + kv_head) * row_bytes();
  }
  uint8_t* query(size_t kv_head, size_t row) const {
    return queries + (kv_head * rows + row) * group() * query_bytes();
  }
};

// Norms and turns all rows: queries to `queries`, keys and values to the cache, or to the fresh rows.
void prepare_rows(const Call& call);

// Attention of all runs -> out.
void attend_runs(const Call& call);

// The keys and values of fresh runs go to the cache.
void keep_fresh(const Call& call);

// Scratch memory of attention, beside what blocks.h counts.
enum AttentionSlot : int { kQueries = 8, kFresh, kPartials, kAttendTask, kPrepareTask };

}  // namespace onechip

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(onechip::HeadAttrs, xla::ffi::StructMember<int32_t>("heads"),
                                      xla::ffi::StructMember<int32_t>("kv_heads"),
                                      xla::ffi::StructMember<int32_t>("window"),
                                      xla::ffi::StructMember<bool>("owns_kv"),
                                      xla::ffi::StructMember<bool>("k_eq_v"),
                                      xla::ffi::StructMember<float>("q_scale"));
