// Products of int8 activations with int8 and int4 weights. No guard; included like tiles_elementwise.h, after the
// instruction set's
//
//   kQuantRows              rows of the largest tile
//   kOffset<W>              what the group's sum of activations is multiplied by, and the integer product begins with,
//                           because stored weights stand shifted
//   quant_tile<R, P, W, S>  R rows times P panels, over some blocks

constexpr size_t kQuantBlocks = 24;  // blocks of activations that a tile keeps in the first-level cache

// Rows where they lie.
template <Weight W>
struct RowsInPlace {
  const int8_t* at;
  const float* scales;
  const int32_t* sums;
  size_t columns;

  [[gnu::always_inline]] const int8_t* values(int row, int group) const { return at + row * columns + group * kGroup; }
  [[gnu::always_inline]] const float* scale(int row, int group) const {
    return scales + row * (columns / kGroup) + group;
  }
  [[gnu::always_inline]] int32_t offset(int row, int group) const {
    return sums[row * (columns / kGroup) + group] * kOffset<W>;
  }
  [[gnu::always_inline]] void next_block() { at += kBlock, scales += 2, sums += 2; }
};

// R rows side by side, block by block: 64 values of each row; then of each group R scales; then R offsets. Addresses
// are constants, and rows whose stride is a multiple of 4,096 bytes do not push each other out of the cache.
template <int R>
struct RowsPacked {
  static constexpr size_t kBytes = R * (kBlock + 2 * sizeof(float) + 2 * sizeof(int32_t));
  const uint8_t* at;

  [[gnu::always_inline]] const int8_t* values(int row, int group) const {
    return reinterpret_cast<const int8_t*>(at) + row * kBlock + group * kGroup;
  }
  [[gnu::always_inline]] const float* scale(int row, int group) const {
    return reinterpret_cast<const float*>(at + R * kBlock) + group * R + row;
  }
  [[gnu::always_inline]] int32_t offset(int row, int group) const {
    return reinterpret_cast<const int32_t*>(at + R * kBlock)[(2 + group) * R + row];
  }
  [[gnu::always_inline]] void next_block() { at += kBytes; }
};

template <Weight W>
void pack_rows(const Rows& x, size_t first, size_t rows, size_t block, size_t blocks, uint8_t* to) {
  const int8_t* values = static_cast<const int8_t*>(x.values);
  const size_t groups = x.columns / kGroup;
  for (size_t b = block; b < block + blocks; b++) {
    float* scales = reinterpret_cast<float*>(to + rows * kBlock);
    int32_t* offsets = reinterpret_cast<int32_t*>(to + rows * (kBlock + 2 * sizeof(float)));
    for (size_t r = 0; r < rows; r++) {
      memcpy(to + r * kBlock, values + (first + r) * x.columns + b * kBlock, kBlock);
      for (size_t g = 0; g < 2; g++) {
        scales[g * rows + r] = x.scales[(first + r) * groups + 2 * b + g];
        offsets[g * rows + r] = x.sums[(first + r) * groups + 2 * b + g] * kOffset<W>;
      }
    }
    to += rows * (kBlock + 2 * sizeof(float) + 2 * sizeof(int32_t));
  }
}

template <Weight W, Scale S>
struct QuantPacked {
  template <int R>
  static void run(const uint8_t* panel, size_t blocks, const uint8_t* x, bool more, float* out, size_t out_stride) {
    quant_tile<R, 1, W, S>(panel, 0, blocks, RowsPacked<R>{x}, more, out, out_stride);
  }
};

template <int P, Weight W, Scale S>
struct QuantInPlace {
  template <int R>
  static void run(const uint8_t* panel, size_t panel_bytes, size_t blocks, RowsInPlace<W> x, float* out,
                  size_t out_stride) {
    quant_tile<R, P, W, S>(panel, panel_bytes, blocks, x, false, out, out_stride);
  }
};

constexpr size_t kInPlaceRows = 4;  // up to which few panels do not pay for packing the rows

// One row of long panels is read from four of them at a time: on Zen 4, int4 weights of 12,288 inputs from memory went
// from 25 to 31 GB/s. Panels of 14 KB are too short for that: 31 GB/s became 19.
constexpr size_t kLongPanel = 32768;
constexpr size_t kSideBySide = 4;

template <Weight W, Scale S>
void quant_few(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
               size_t out_stride) {
  static constexpr ByRows<QuantInPlace<1, W, S>, kInPlaceRows> by_rows;
  const size_t groups = x.columns / kGroup, panel_bytes = weight.panel_bytes(), blocks = x.columns / kBlock;
  const RowsInPlace<W> here{static_cast<const int8_t*>(x.values) + first * x.columns, x.scales + first * groups,
                            x.sums + first * groups, x.columns};
  size_t p = 0;
  if (rows == 1 && panel_bytes >= kLongPanel)
    for (; p + kSideBySide <= count; p += kSideBySide)
      QuantInPlace<kSideBySide, W, S>::template run<1>(weight.data + p * panel_bytes, panel_bytes, blocks, here,
                                                       out + p * kLanes, out_stride);
  for (; rows > 0 && p < count; p++)
    by_rows.table[rows](weight.data + p * panel_bytes, panel_bytes, blocks, here, out + p * kLanes, out_stride);
}

template <Weight W, Scale S>
void quant_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                   size_t out_stride) {
  const size_t blocks = x.columns / kBlock, panel_bytes = weight.panel_bytes();
  if (rows <= kInPlaceRows) return quant_few<W, S>(weight, count, x, first, rows, out, out_stride);
  static constexpr ByRows<QuantPacked<W, S>, kQuantRows> many;
  alignas(64) uint8_t packed[kQuantBlocks * RowsPacked<kQuantRows>::kBytes];
  const Cut cut(rows, kQuantRows);
  for (size_t tile = 0; tile < cut.tiles; tile++) {
    const size_t from = cut.begin(tile), size = cut.begin(tile + 1) - from;
    for (size_t block = 0; block < blocks; block += kQuantBlocks) {
      const size_t some = blocks - block < kQuantBlocks ? blocks - block : kQuantBlocks;
      pack_rows<W>(x, first + from, size, block, some, packed);
      for (size_t p = 0; p < count; p++)
        many.table[size](weight.data + p * panel_bytes + block * block_bytes(W), some, packed, block > 0,
                         out + from * out_stride + p * kLanes, out_stride);
    }
  }
}

// Without tiles.
struct QuantDot {
  template <Weight W, Scale S>
  static void product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                      size_t out_stride) {
    quant_product<W, S>(weight, count, x, first, rows, out, out_stride);
  }
};

template <class Dot>
void int8_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                  size_t out_stride) {
  const bool half = weight.scale == Scale::kHalf;
  auto run = half ? Dot::template product<Weight::kInt8, Scale::kHalf>
                  : Dot::template product<Weight::kInt8, Scale::kBf16>;
  if (weight.kind == Weight::kInt4)
    run = half ? Dot::template product<Weight::kInt4, Scale::kHalf>
               : Dot::template product<Weight::kInt4, Scale::kBf16>;
  run(weight, count, x, first, rows, out, out_stride);
}
