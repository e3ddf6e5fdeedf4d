// Attention of runs, cut into tiles of rows and KV head, and these into pieces of some blocks of keys each.
//
// Each block's partial result is computed by itself and merged in the order of positions, so how a tile is cut does not
// change a bit. The first piece merges as it goes; the others leave each block's result in memory, and whoever ends a
// tile's last piece merges those.
#include "attention_call.h"

#include <atomic>

namespace onechip {
namespace {

constexpr size_t kTileQueries = 64;   // a tile's queries, unless one row has more
constexpr size_t kPiecesPerThread = 4;

alignas(64) const uint8_t kZeros[kMostWidth * sizeof(float)] = {};

struct Tile {
  const Run* run;
  size_t first, rows;  // of the call
  size_t kv_head;
  size_t first_block, blocks;
  size_t blocks_per_piece;
  float* partials;  // [blocks], if it has several pieces

  size_t pieces() const { return (blocks + blocks_per_piece - 1) / blocks_per_piece; }
  size_t position(size_t row) const { return run->position + row - run->first; }
};

struct Piece {
  size_t tile;
  size_t index;
};

size_t lowest_seen(const Call& call, size_t position) {
  return call.window && position >= call.window ? position - call.window + 1 : 0;
}

// Floats of a partial result: sums, then `highest`, then `total`.
size_t partial_floats(const Call& call, size_t count) { return count * call.padded() + (2 * count + 15) / 16 * 16; }

Partial partial_at(const Call& call, size_t count, float* memory) {
  float* highest = memory + count * call.padded();
  return {memory, highest, highest + count};
}

// Memory of a task, for a tile of `count` queries.
struct Room {
  float* scores;
  float *sum, *next;  // partial results
  int *first, *last;  // [count]

  Room(const Call& call, size_t count) {
    const size_t floats = partial_floats(call, count);
    const size_t ranges = (2 * count + 15) / 16 * 16;
    float* memory = static_cast<float*>(
        scratch(kAttendTask, (2 * count * kKeys + 2 * floats) * sizeof(float) + ranges * sizeof(int)));
    scores = memory;
    sum = scores + 2 * count * kKeys;
    next = sum + floats;
    first = reinterpret_cast<int*>(next + floats);
    last = first + count;
  }
};

struct KeyRow {
  const uint8_t *key, *value;
};

// `place` is that of the position in the cache.
KeyRow row_at(const Call& call, const Tile& tile, size_t position, size_t place) {
  const Run& run = *tile.run;
  if (run.fresh && position >= run.position) {
    const size_t row = run.first + position - run.position;
    return {call.fresh(call.fresh_k, row, tile.kv_head), call.fresh(call.fresh_v, row, tile.kv_head)};
  }
  return {call.cached(call.k, run.slot, tile.kv_head, place), call.cached(call.v, run.slot, tile.kv_head, place)};
}

// The rows at positions [base, base + kKeys) that rows of the tile see.
void find_keys(const Call& call, const Tile& tile, size_t base, KeyBlock* block) {
  const size_t low = std::max(base, lowest_seen(call, tile.position(tile.first)));
  const size_t end = std::min(base + kKeys, tile.position(tile.first + tile.rows - 1) + 1);
  block->first = static_cast<int>((low - base) / kKeyStep * kKeyStep);
  block->last = static_cast<int>((end - base + kKeyStep - 1) / kKeyStep * kKeyStep);
  for (int i = block->first; i < block->last; ++i) block->keys[i] = block->values[i] = kZeros;
  size_t place = call.place(low);
  for (size_t position = low; position < end; ++position, ++place) {
    if (place == call.length) place = 0;
    const KeyRow row = row_at(call, tile, position, place);
    block->keys[position - base] = row.key;
    block->values[position - base] = row.value;
  }
}

void attend_block(const Call& call, const Tile& tile, size_t block_index, const Room& room, const Partial& out) {
  const size_t base = block_index * kKeys, group = call.group();
  KeyBlock block;
  find_keys(call, tile, base, &block);
  const void* next[kKeyStep];
  const size_t end = base + kKeys;
  const bool more = tile.position(tile.first) >= end + kKeyStep;
  for (size_t i = 0; more && i < kKeyStep; ++i) next[i] = row_at(call, tile, end + i, call.place(end + i)).key;
  block.next = more ? next : nullptr;
  for (size_t row = 0; row < tile.rows; ++row) {
    const size_t position = tile.position(tile.first + row), low = lowest_seen(call, position);
    const int first = low > base ? static_cast<int>(std::min<size_t>(low - base, kKeys)) : 0;
    const int last = position + 1 > base ? static_cast<int>(std::min<size_t>(position + 1 - base, kKeys)) : 0;
    std::fill_n(room.first + row * group, group, first);
    std::fill_n(room.last + row * group, group, last);
  }
  const Queries queries{call.query(tile.kv_head, tile.first), tile.rows * group, static_cast<int>(call.width),
                        room.first, room.last};
  call.kernels.block(block, queries, room.scores, out);
}

void finish(const Call& call, const Tile& tile, const Partial& sum) {
  const size_t group = call.group();
  for (size_t i = 0; i < tile.rows * group; ++i) {
    const size_t head = tile.kv_head * group + i % group, row = tile.first + i / group;
    call.kernels.finish(sum, i, static_cast<int>(call.width), call.out + (row * call.heads + head) * call.row_bytes());
  }
}

void merge_pieces(const Call& call, const Tile& tile) {
  const size_t count = tile.rows * call.group(), floats = partial_floats(call, count);
  const Partial sum = partial_at(call, count, tile.partials);
  for (size_t block = tile.blocks_per_piece; block < tile.blocks; ++block)
    call.kernels.merge(sum, partial_at(call, count, tile.partials + block * floats), count,
                       static_cast<int>(call.width));
  finish(call, tile, sum);
}

// The first piece of a tile: blocks merged in order -> sum.
void attend_first(const Call& call, const Tile& tile, const Room& room, const Partial& sum) {
  const size_t count = tile.rows * call.group();
  const Partial next = partial_at(call, count, room.next);
  std::fill_n(sum.highest, count, kNothing);
  std::fill_n(sum.total, count, 0.0F);
  for (size_t block = 0; block < std::min(tile.blocks, tile.blocks_per_piece); ++block) {
    attend_block(call, tile, tile.first_block + block, room, next);
    call.kernels.merge(sum, next, count, static_cast<int>(call.width));
  }
}

void attend_piece(const Call& call, const Tile& tile, size_t piece, std::atomic<size_t>& left) {
  const size_t count = tile.rows * call.group(), floats = partial_floats(call, count);
  const Room room(call, count);
  if (tile.pieces() == 1) {
    const Partial sum = partial_at(call, count, room.sum);
    attend_first(call, tile, room, sum);
    finish(call, tile, sum);
    return;
  }
  if (piece == 0) {
    attend_first(call, tile, room, partial_at(call, count, tile.partials));
  } else {
    const size_t end = std::min(tile.blocks, (piece + 1) * tile.blocks_per_piece);
    for (size_t block = piece * tile.blocks_per_piece; block < end; ++block)
      attend_block(call, tile, tile.first_block + block, room,
                   partial_at(call, count, tile.partials + block * floats));
  }
  if (left.fetch_sub(1) == 1) merge_pieces(call, tile);
}

std::vector<Tile> tiles_of(const Call& call) {
  const size_t most = std::max<size_t>(1, kTileQueries / call.group());
  std::vector<Tile> tiles;
  for (const Run& run : call.runs)
    for (size_t kv_head = 0; kv_head < call.kv_heads; ++kv_head)
      for (size_t at = 0; at < run.rows; at += most) {
        Tile tile{&run, run.first + at, std::min(most, run.rows - at), kv_head, 0, 0, 0, nullptr};
        tile.first_block = lowest_seen(call, tile.position(tile.first)) / kKeys;
        tile.blocks = tile.position(tile.first + tile.rows - 1) / kKeys + 1 - tile.first_block;
        tiles.push_back(tile);
      }
  return tiles;
}

// Time on one thread, roughly: reading keys and values at 12 GB/s, or 5e10 multiply-adds a second.
double cost_ns(const Call& call, const std::vector<Tile>& tiles) {
  double cost = 0;
  for (const Tile& tile : tiles) {
    const double keys = static_cast<double>(tile.blocks * kKeys);
    const double queries = static_cast<double>(tile.rows * call.group());
    cost += 2 * keys * std::max(static_cast<double>(call.row_bytes()) / 12, queries * static_cast<double>(call.width) / 50);
  }
  return cost;
}

}  // namespace

void attend_runs(const Call& call) {
  std::vector<Tile> tiles = tiles_of(call);
  const double cost = cost_ns(call, tiles);
  size_t blocks = 0;
  for (const Tile& tile : tiles) blocks += tile.blocks;
  const size_t threads = static_cast<size_t>(Team::get().size());
  const bool alone = threads == 1 || cost < kWorthSharing_ns;
  const size_t per_piece = alone ? blocks + 1 : blocks / (threads * kPiecesPerThread) + 1;

  std::vector<Piece> pieces;
  std::vector<std::atomic<size_t>> left(tiles.size());
  size_t floats = 0;
  for (size_t i = 0; i < tiles.size(); ++i) {
    Tile& tile = tiles[i];
    tile.blocks_per_piece = std::min(per_piece, tile.blocks);
    left[i] = tile.pieces();
    for (size_t piece = 0; piece < tile.pieces(); ++piece) pieces.push_back({i, piece});
    if (tile.pieces() > 1) floats += tile.blocks * partial_floats(call, tile.rows * call.group());
  }
  float* memory = floats ? static_cast<float*>(scratch(kPartials, floats * sizeof(float))) : nullptr;
  for (Tile& tile : tiles) {
    if (tile.pieces() == 1) continue;
    tile.partials = memory;
    memory += tile.blocks * partial_floats(call, tile.rows * call.group());
  }
  share(cost, pieces.size(),
        [&](size_t index) { attend_piece(call, tiles[pieces[index].tile], pieces[index].index, left[pieces[index].tile]); });
}

}  // namespace onechip
