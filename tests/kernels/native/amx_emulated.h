// AMX's tiles in plain C++, from the operations in Intel's manual (volume 2: LDTILECFG, TILELOADD, TILESTORED, TDPBSSD,
// TDPBF16PS). What the processor would refuse (#UD, #GP) is counted as a failure. No guard; included after
// tiles_amx.h, whose classes it is for, where the target has FMA.

struct EmulatedTiles {
  struct Tile {
    int rows, row_bytes;
    alignas(64) uint8_t bytes[16][64];
  };
  static inline Tile tiles[8];
  static inline bool configured = false;

  static void configure(const TileConfig& config) {
    EXPECT(config.palette == 1 && config.start_row == 0, "the only palette is 1, not %d", config.palette);
    for (int i = 0; i < 16; i++) {
      const bool used = i < 8;
      EXPECT(used ? config.rows[i] <= 16 && config.row_bytes[i] <= 64 : config.rows[i] == 0 && config.row_bytes[i] == 0,
             "tile %d has %d rows of %d bytes", i, config.rows[i], config.row_bytes[i]);
      EXPECT((config.rows[i] == 0) == (config.row_bytes[i] == 0), "tile %d is half a tile", i);
      if (used) tiles[i] = {config.rows[i], config.row_bytes[i], {}};
    }
    for (uint8_t byte : config.reserved) EXPECT(byte == 0, "a reserved byte is %d", byte);
    configured = true;
  }

  static void release() {
    std::memset(tiles, 0, sizeof tiles);
    configured = false;
  }

  static void expect_valid(const Tile& tile) {
    EXPECT(configured && tile.rows > 0 && tile.row_bytes % 4 == 0, "a tile of %d rows of %d bytes", tile.rows,
           tile.row_bytes);
  }

  template <int t>
  static void zero() {
    expect_valid(tiles[t]);
    std::memset(tiles[t].bytes, 0, sizeof tiles[t].bytes);
  }

  template <int t>
  static void load(const void* at, size_t stride) {
    zero<t>();
    for (int row = 0; row < tiles[t].rows; row++)
      std::memcpy(tiles[t].bytes[row], static_cast<const uint8_t*>(at) + row * stride, tiles[t].row_bytes);
  }

  template <int t>
  static void store(void* at, size_t stride) {
    expect_valid(tiles[t]);
    for (int row = 0; row < tiles[t].rows; row++)
      std::memcpy(static_cast<uint8_t*>(at) + row * stride, tiles[t].bytes[row], tiles[t].row_bytes);
  }

  // c [m, n] += a [m, k] * b [k, n], in numbers of four bytes.
  template <int c, int a, int b>
  static void expect_fitting() {
    static_assert(c != a && a != b && b != c);
    for (const Tile& tile : {tiles[c], tiles[a], tiles[b]}) expect_valid(tile);
    EXPECT(tiles[a].rows == tiles[c].rows && tiles[a].row_bytes == 4 * tiles[b].rows &&
               tiles[b].row_bytes == tiles[c].row_bytes,
           "[%d, %d] += [%d, %d] * [%d, %d]", tiles[c].rows, tiles[c].row_bytes, tiles[a].rows, tiles[a].row_bytes,
           tiles[b].rows, tiles[b].row_bytes);
  }

  template <int c, int a, int b>
  static void dot_int8() {
    expect_fitting<c, a, b>();
    for (int m = 0; m < tiles[c].rows; m++) {
      for (int n = 0; n < tiles[c].row_bytes / 4; n++) {
        uint32_t sum;  // wraps
        std::memcpy(&sum, tiles[c].bytes[m] + 4 * n, 4);
        for (int k = 0; k < tiles[b].rows; k++)
          for (int i = 0; i < 4; i++)
            sum += static_cast<uint32_t>(static_cast<int8_t>(tiles[a].bytes[m][4 * k + i]) *
                                         static_cast<int8_t>(tiles[b].bytes[k][4 * n + i]));
        std::memcpy(tiles[c].bytes[m] + 4 * n, &sum, 4);
      }
    }
  }

  template <int c, int a, int b>
  static void dot_bf16() {
    expect_fitting<c, a, b>();
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0x9fc0);  // to nearest even, subnormals are zeros both ways, nothing raised: whatever MXCSR says
    for (int m = 0; m < tiles[c].rows; m++) dot_row(tiles[c].bytes[m], tiles[a].bytes[m], tiles[b]);
    _mm_setcsr(before);
  }

  // The even inputs are one chain of fused multiply-adds and the odd ones another; they meet at the end. Not inlined,
  // so that no arithmetic leaves the mode that it is called in.
  [[gnu::noinline]] static void dot_row(uint8_t* c, const uint8_t* a, const Tile& b) {
    for (int n = 0; n < b.row_bytes / 4; n++) {
      float sum[2] = {0, 0}, all;
      for (int k = 0; k < b.rows; k++)
        for (int i = 0; i < 2; i++)
          sum[i] = __builtin_fmaf(bf16_at(a + 4 * k + 2 * i), bf16_at(b.bytes[k] + 4 * n + 2 * i), sum[i]);
      std::memcpy(&all, c + 4 * n, 4);
      all += sum[0] + sum[1];
      std::memcpy(c + 4 * n, &all, 4);
    }
  }

  static float bf16_at(const uint8_t* at) {
    uint16_t half;
    std::memcpy(&half, at, 2);
    return from_bf16(half);
  }
};
