// What happens to new rows before attention, and where their keys and values go.
#include "attention_call.h"

#include <cmath>
#include <cstring>

namespace onechip {
namespace {

// Room for one head, and for sines and cosines, of one row.
struct Room {
  float *raw, *head;                       // [width]
  float *cos, *sin, *q_cos, *q_sin;        // [width / 2], rounded; for queries times q_scale

  explicit Room(size_t width) {
    float* memory = static_cast<float*>(scratch(kPrepareTask, 4 * width * sizeof(float)));
    raw = memory;
    head = memory + width;
    cos = memory + 2 * width;
    sin = cos + width / 2;
    q_cos = sin + width / 2;
    q_sin = q_cos + width / 2;
  }
};

void round_turns(const Call& call, const float* x, float scale, float* out) {
  const size_t half = call.width / 2;
  for (size_t i = 0; i < half; ++i) out[i] = x[i] * scale;
  round_to(call.tiles, call.bf16, out, half);
}

// norm(x), rounded, in room.head.
void normed(const Call& call, const uint8_t* x, const Norm& norm, const Room& room) {
  const Tiles& tiles = call.tiles;
  if (!norm.present) {
    const float* wide = load(tiles, call.bf16, x, call.width, room.raw);
    std::memcpy(room.head, wide, call.width * sizeof(float));
    return;
  }
  const float* wide = load(tiles, call.bf16, x, call.width, room.raw);
  const float mean = tiles.sum_squares(wide, call.width) / static_cast<float>(call.width);
  const float factor = 1 / std::sqrt(mean + norm.eps);
  tiles.scale_by(wide, call.width, factor, norm.weight, norm.weight_is_bf16, norm.offset, room.head);
  round_to(tiles, call.bf16, room.head, call.width);
}

void put_query(const Call& call, const float* head, uint8_t* out) {
  if (call.kernels.bf16_queries) {
    call.tiles.narrow(head, call.width, reinterpret_cast<uint16_t*>(out));
  } else {
    std::memcpy(out, head, call.width * sizeof(float));
  }
  const size_t element = call.kernels.bf16_queries ? 2 : 4;
  std::memset(out + call.width * element, 0, (call.padded() - call.width) * element);
}

void prepare_queries(const Call& call, size_t row, const uint8_t* x, const Room& room) {
  round_turns(call, call.cos + row * (call.width / 2), call.q_scale, room.q_cos);
  round_turns(call, call.sin + row * (call.width / 2), call.q_scale, room.q_sin);
  for (size_t head = 0; head < call.heads; ++head) {
    normed(call, x + head * call.row_bytes(), call.q_norm, room);
    call.turn(room.head, static_cast<int>(call.width), room.q_cos, room.q_sin);
    const size_t kv_head = head / call.group();
    put_query(call, room.head, call.query(kv_head, row) + head % call.group() * call.query_bytes());
  }
}

void prepare_row(const Call& call, const Run& run, size_t row) {
  const Room room(call.width);
  const uint8_t* x = call.qkv + row * call.columns * (call.bf16 ? 2 : 4);
  prepare_queries(call, row, x, room);
  if (!call.owns_kv) return;
  round_turns(call, call.cos + row * (call.width / 2), 1, room.cos);
  round_turns(call, call.sin + row * (call.width / 2), 1, room.sin);
  const size_t place = call.place(run.position + row - run.first);
  for (size_t kv_head = 0; kv_head < call.kv_heads; ++kv_head) {
    const uint8_t* raw_k = x + (call.heads + kv_head) * call.row_bytes();
    const uint8_t* raw_v = call.k_eq_v ? raw_k : raw_k + call.kv_heads * call.row_bytes();
    normed(call, raw_k, call.k_norm, room);
    call.turn(room.head, static_cast<int>(call.width), room.cos, room.sin);
    store(call.tiles, call.bf16, room.head, call.width,
          run.fresh ? call.fresh(call.fresh_k, row, kv_head) : call.cached(call.k, run.slot, kv_head, place));
    normed(call, raw_v, call.v_norm, room);
    store(call.tiles, call.bf16, room.head, call.width,
          run.fresh ? call.fresh(call.fresh_v, row, kv_head) : call.cached(call.v, run.slot, kv_head, place));
  }
}

// Rows that a task takes.
constexpr size_t kFewRows = 8;

struct Piece {
  const Run* run;
  size_t first, rows;
};

std::vector<Piece> pieces_of(const std::vector<Run>& runs) {
  std::vector<Piece> pieces;
  for (const Run& run : runs)
    for (size_t at = 0; at < run.rows; at += kFewRows)
      pieces.push_back({&run, run.first + at, std::min(kFewRows, run.rows - at)});
  return pieces;
}

}  // namespace

void prepare_rows(const Call& call) {
  const std::vector<Piece> pieces = pieces_of(call.runs);
  size_t rows = 0;
  for (const Piece& piece : pieces) rows += piece.rows;
  share(rows_cost_ns(rows, call.columns), pieces.size(), [&](size_t index) {
    const Piece& piece = pieces[index];
    for (size_t row = piece.first; row < piece.first + piece.rows; ++row) prepare_row(call, *piece.run, row);
  });
}

void keep_fresh(const Call& call) {
  for (const Run& run : call.runs) {
    if (!run.fresh) continue;
    const size_t kept = std::min(run.rows, call.window);
    for (size_t row = run.first + run.rows - kept; row < run.first + run.rows; ++row) {
      const size_t place = call.place(run.position + row - run.first);
      for (size_t kv_head = 0; kv_head < call.kv_heads; ++kv_head) {
        std::memcpy(call.cached(call.k, run.slot, kv_head, place), call.fresh(call.fresh_k, row, kv_head),
                    call.row_bytes());
        std::memcpy(call.cached(call.v, run.slot, kv_head, place), call.fresh(call.fresh_v, row, kv_head),
                    call.row_bytes());
      }
    }
  }
}

}  // namespace onechip
