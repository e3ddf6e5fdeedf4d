// Products by a matrix unit that multiplies tiles as Intel's AMX does. No guard; included like tiles_elementwise.h,
// after tiles_quant.h and tiles_pairs.h. The unit is a class, here T: AMX itself (tiles_amx.cc), or tests' emulation.
//
//   configure(TileConfig)     the shapes of this thread's eight tiles; their contents become zeros
//   release()                 this thread needs no tiles any more
//   zero<t>()                 tile t = 0
//   load<t>(at, stride)       tile t = its rows from memory, `stride` bytes apart
//   store<t>(at, stride)      the other way
//   dot_int8<c, a, b>()       tile c += a * b: four int8 of a row of a times four of a column of b, int32
//   dot_bf16<c, a, b>()       likewise with two bf16, float32
//
// Numbers of tiles are template arguments because they stand in the instruction. Activations are the tile a, up to 16
// rows of 32 int8 or of 32 bf16; weights the tile b as they lie in a panel (layout.h), 8 or 16 lines of 64 bytes.

constexpr size_t kTileRows = 16;
constexpr int kSums = 0, kRowTiles = 4, kWeightTiles = 6;  // the first of four, two and two tiles

// What ldtilecfg reads (Intel's manual, volume 2, LDTILECFG).
struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];

  // For `rows` rows of activations, whose lines of 16 weights are 8 or 16 a tile.
  constexpr TileConfig(size_t rows_of, size_t lines) : palette(1), start_row(0), reserved{}, row_bytes{}, rows{} {
    for (int t = 0; t < 8; t++) {
      const bool is_rows = t >= kRowTiles && t < kWeightTiles;
      row_bytes[t] = static_cast<uint16_t>(is_rows ? 4 * lines : 64);
      rows[t] = static_cast<uint8_t>(t >= kWeightTiles ? lines : rows_of);
    }
  }
};

// While it lives this thread's tiles are in use. Other code of the process (XLA's products) configures them for itself
// before each use, and so do we: nothing is expected to be left of the last time.
template <class T>
struct TilesInUse {
  TilesInUse(size_t rows, size_t lines) { T::configure(TileConfig(rows < kTileRows ? rows : kTileRows, lines)); }
  ~TilesInUse() { T::release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

// body(0), ... body(N - 1), with numbers that are constants.
template <int N, class Body>
[[gnu::always_inline]] inline void each(const Body& body) {
  if constexpr (N > 0) {
    each<N - 1>(body);
    body(std::integral_constant<int, N - 1>{});
  }
}

#include "tiles_amx_int8.h"

#include "tiles_amx_bf16.h"
