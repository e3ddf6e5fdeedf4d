// Products of int8 activations with int8 and int4 weights, a group of 32 inputs at a time. No guard; part of
// tiles_amx.h. The whole numbers of a group are exact, and what follows is what tiles_quant.h does in its order: the
// result is the same to the bit.

// A tile of one group takes about as long for one row as for 16, VNNI about 5.5 clocks a row: by a count of
// instructions (no chip was at hand) they meet here.
constexpr size_t kAmxRows = 8;
constexpr size_t kAmxSharedRows = 64;  // rows that share one unpacking of int4
constexpr size_t kAmxBlocks = 8;       // blocks unpacked and packed at once: 45 KB with 64 rows, a first-level cache

// One block of 16 rows.
struct alignas(64) RowTile {
  int8_t values[kTileRows][kBlock];
  float scales[2][kTileRows];
};

// Some blocks of one panel: values as int8, in lines as layout.h has them, and scales.
struct Int8Lines {
  const uint8_t* values;
  size_t step;  // bytes from block to block
  const uint8_t* scales;
  size_t scale_step;
};

template <class T, Scale S>
struct AmxTile {
  template <int R>
  static void run(Int8Lines w, const RowTile* x, size_t blocks, bool more, float* out, size_t out_stride) {
    alignas(64) int32_t whole[2][kTileRows][kLanes];
    F sum[R];
    for (int r = 0; r < R; r++) sum[r] = start_of(more, out + r * out_stride);
    for (size_t b = 0; b < blocks; b++, x++, w.values += w.step, w.scales += w.scale_step) {
      each<2>([&](auto group) __attribute__((always_inline)) {
        constexpr int g = group;
        T::template zero<kSums + g>();
        T::template load<kRowTiles + g>(x->values[0] + g * kGroup, kBlock);
        T::template load<kWeightTiles + g>(w.values + g * (kGroup * kLanes), 64);
        T::template dot_int8<kSums + g, kRowTiles + g, kWeightTiles + g>();
        T::template store<kSums + g>(whole[g], sizeof whole[g][0]);
      });
      for (int g = 0; g < 2; g++) {
        const F scale = load_scales<S>(w.scales + 32 * g);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
          sum[r] = fma(multiply(to_float(load_int(whole[g][r])), scale), set(x->scales[g][r]), sum[r]);
      }
    }
    for (int r = 0; r < R; r++) store(out + r * out_stride, sum[r]);
  }
};

// The values of one block; `next` will be read later.
inline void unpack_int4(const uint8_t* w, uintptr_t next, uint8_t* out) {
  for (size_t line = 0; line < block_bytes(Weight::kInt4); line += 64) prefetch(next + line);
  const I nibble = set_int(0x0f0f0f0f), eight = set_int(0x08080808);
  for (int g = 0; g < 2; g++) {
    for (int s = 0; s < 4; s++) {
      const I line = load_int(w + 256 * g + 64 * s);
      int32_t* const to = reinterpret_cast<int32_t*>(out + 512 * g + 64 * s);
      lanes(to, subtract_int8(and_int(line, nibble), eight));
      lanes(to + 4 * kLanes, subtract_int8(and_int(shift_right<4>(line), nibble), eight));
    }
  }
}

// Rows in tiles of 16, and zeros where the last tile has no row.
inline void pack_row_tiles(const Rows& x, size_t first, size_t rows, size_t block, size_t blocks,
                           RowTile (*to)[kAmxBlocks]) {
  const int8_t* values = static_cast<const int8_t*>(x.values);
  const size_t groups = x.columns / kGroup, tiles = (rows + kTileRows - 1) / kTileRows;
  for (size_t r = 0; r < tiles * kTileRows; r++) {
    for (size_t b = 0; b < blocks; b++) {
      RowTile& tile = to[r / kTileRows][b];
      const size_t row = first + r, lane = r % kTileRows;
      if (r >= rows) {
        memset(tile.values[lane], 0, kBlock);
        continue;
      }
      memcpy(tile.values[lane], values + row * x.columns + (block + b) * kBlock, kBlock);
      for (size_t g = 0; g < 2; g++) tile.scales[g][lane] = x.scales[row * groups + 2 * (block + b) + g];
    }
  }
}

// Rows first..first + rows, at most kAmxSharedRows, times all panels.
template <class T, Weight W, Scale S>
void amx_rows(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
              size_t out_stride) {
  static constexpr ByRows<AmxTile<T, S>, kTileRows> by_rows;
  constexpr size_t kValues = kBlock * kLanes;
  alignas(64) RowTile packed[kAmxSharedRows / kTileRows][kAmxBlocks];
  alignas(64) uint8_t unpacked[W == Weight::kInt4 ? kAmxBlocks * kValues : 64];
  const size_t blocks = x.columns / kBlock, panel_bytes = weight.panel_bytes();
  for (size_t block = 0; block < blocks; block += kAmxBlocks) {
    const size_t some = blocks - block < kAmxBlocks ? blocks - block : kAmxBlocks;
    pack_row_tiles(x, first, rows, block, some, packed);
    const uint8_t* chunk = weight.data + block * block_bytes(W);
    for (size_t p = 0; p < count; p++) {
      const uint8_t* w = chunk + p * panel_bytes;
      Int8Lines lines{w, block_bytes(W), w + block_bytes(W) - 64, block_bytes(W)};
      if constexpr (W == Weight::kInt4) {
        const uint8_t* next = p + 1 < count ? w + panel_bytes : chunk + some * block_bytes(W);
        for (size_t b = 0; b < some; b++)
          unpack_int4(w + b * block_bytes(W), reinterpret_cast<uintptr_t>(next) + b * block_bytes(W),
                      unpacked + b * kValues);
        lines.values = unpacked, lines.step = kValues;
      }
      for (size_t r = 0; r < rows; r += kTileRows)
        by_rows.table[rows - r < kTileRows ? rows - r : kTileRows](lines, packed[r / kTileRows], some, block > 0,
                                                                   out + r * out_stride + p * kLanes, out_stride);
    }
  }
}

// As int8_product wants it.
template <class T>
struct AmxDot {
  template <Weight W, Scale S>
  static void product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                      size_t out_stride) {
    if (rows < kAmxRows) return quant_product<W, S>(weight, count, x, first, rows, out, out_stride);
    const TilesInUse<T> use(rows, kGroup / 4);
    const Cut cut(rows, kAmxSharedRows, kTileRows);
    for (size_t t = 0; t < cut.tiles; t++) {
      const size_t from = cut.begin(t);
      amx_rows<T, W, S>(weight, count, x, first + from, cut.begin(t + 1) - from, out + from * out_stride, out_stride);
    }
  }
};
