// Products of bf16 activations with all weights, in pairs of inputs: which rows meet which panels when. No guard;
// included like tiles_elementwise.h, after
//
//   expand_block<W, S>  one block of int4 or int8 as bf16 pairs
//
// The arithmetic is a class's, here Dot:
//
//   kFewRows     rows up to which a weight is read from end to end, four panels at a time
//   kManyPanels  panels at a time above that
//   kRowUnit     rows are cut at multiples of it
//   Use(rows)    lives through a product of so many rows
//   tiles(...)   any rows times up to four panels

constexpr size_t kPackedRows = 96;    // rows that share one expansion of int4 and int8 weights
constexpr size_t kPairBlocks = 4;     // blocks that are expanded and packed at once
constexpr size_t kPackedColumns = kPairBlocks * kBlock + 32;  // 64 bytes more: no multiple of 4,096

// Bf16 pairs of some panels over some blocks, and what will be read after them.
struct Pairs {
  const uint8_t* at;
  size_t panel_bytes, blocks;
  uintptr_t next;
};

// Rows of bf16 as `tiles` gets them: in place, or packed, which a constant stride pays for. Memory behind packed rows
// is zeros up to a multiple of kRowUnit rows.
struct PairRows {
  const uint16_t* at;
  size_t stride;  // 0 for packed rows, which lie kPackedColumns apart

  size_t step() const { return stride == 0 ? kPackedColumns : stride; }
};

// A product's weight, and the pairs that some of it is expanded to.
template <Weight W, Scale S>
struct PairSource {
  const Panels& weight;
  const size_t panel_bytes;
  alignas(64) uint8_t expanded[W == Weight::kBf16 ? 64 : 4 * kPairBlocks * block_bytes(Weight::kBf16)];

  explicit PairSource(const Panels& of) : weight(of), panel_bytes(of.panel_bytes()) {}  // `expanded` is not cleared

  const uint8_t* find(size_t panel, size_t block) const {
    return weight.data + panel * panel_bytes + block * block_bytes(W);
  }

  Pairs pairs(size_t panel, size_t panels, size_t block, size_t blocks, const uint8_t* next) {
    const uint8_t* w = find(panel, block);
    const uintptr_t after = reinterpret_cast<uintptr_t>(next);
    if constexpr (W == Weight::kBf16) return {w, panel_bytes, blocks, after};
    const size_t step = blocks * block_bytes(Weight::kBf16);
    for (size_t p = 0; p < panels; p++)
      for (size_t b = 0; b < blocks; b++)
        expand_block<W, S>(w + p * panel_bytes + b * block_bytes(W), after + p * panel_bytes + b * block_bytes(W),
                           expanded + p * step + b * block_bytes(Weight::kBf16));
    return {expanded, step, blocks, reinterpret_cast<uintptr_t>(expanded)};
  }
};

// Four panels at a time from end to end: the weight is read once, in order.
template <class Dot, Weight W, Scale S>
void few_rows(const Panels& weight, size_t count, const uint16_t* values, size_t columns, size_t rows, float* out,
              size_t out_stride) {
  PairSource<W, S> source(weight);
  const size_t blocks = columns / kBlock, chunk = W == Weight::kBf16 ? blocks : kPairBlocks;
  for (size_t p = 0; p < count; p += 4) {
    const size_t panels = count - p < 4 ? count - p : 4;
    for (size_t block = 0; block < blocks; block += chunk) {
      const size_t some = blocks - block < chunk ? blocks - block : chunk;
      const uint8_t* next = block + some < blocks ? source.find(p, block + some) : source.find(p + panels, 0);
      Dot::tiles(panels, source.pairs(p, panels, block, some, next), {values + block * kBlock, columns}, rows,
                 block > 0, out + p * kLanes, out_stride);
    }
  }
}

// Some blocks of up to kPackedRows rows side by side, then all panels over them, some at a time.
template <class Dot, Weight W, Scale S>
void many_rows(const Panels& weight, size_t count, const uint16_t* values, size_t columns, size_t rows, float* out,
               size_t out_stride) {
  constexpr size_t kPanels = Dot::kManyPanels;
  static_assert(kPackedRows % Dot::kRowUnit == 0);
  PairSource<W, S> source(weight);
  alignas(64) uint16_t packed[kPackedRows * kPackedColumns];
  for (size_t r = rows; r % Dot::kRowUnit != 0; r++) memset(packed + r * kPackedColumns, 0, kPackedColumns * 2);
  const size_t blocks = columns / kBlock;
  for (size_t block = 0; block < blocks; block += kPairBlocks) {
    const size_t some = blocks - block < kPairBlocks ? blocks - block : kPairBlocks;
    for (size_t r = 0; r < rows; r++)
      memcpy(packed + r * kPackedColumns, values + r * columns + block * kBlock, some * kBlock * sizeof(uint16_t));
    for (size_t p = 0; p < count; p += kPanels) {
      const size_t panels = count - p < kPanels ? count - p : kPanels;
      const uint8_t* next = p + panels < count ? source.find(p + panels, block) : source.find(0, block + some);
      Dot::tiles(panels, source.pairs(p, panels, block, some, next), {packed, 0}, rows, block > 0, out + p * kLanes,
                 out_stride);
    }
  }
}

template <class Dot, Weight W, Scale S>
void pair_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                  size_t out_stride) {
  const typename Dot::Use use(rows);
  const uint16_t* values = static_cast<const uint16_t*>(x.values) + first * x.columns;
  if (rows <= Dot::kFewRows) return few_rows<Dot, W, S>(weight, count, values, x.columns, rows, out, out_stride);
  const Cut cut(rows, kPackedRows, Dot::kRowUnit);
  for (size_t t = 0; t < cut.tiles; t++) {
    const size_t from = cut.begin(t);
    many_rows<Dot, W, S>(weight, count, values + from * x.columns, x.columns, cut.begin(t + 1) - from,
                         out + from * out_stride, out_stride);
  }
}

template <class Dot>
void bf16_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                  size_t out_stride) {
  const bool half = weight.scale == Scale::kHalf;
  auto run = pair_product<Dot, Weight::kBf16, Scale::kBf16>;
  if (weight.kind == Weight::kInt8)
    run = half ? pair_product<Dot, Weight::kInt8, Scale::kHalf> : pair_product<Dot, Weight::kInt8, Scale::kBf16>;
  if (weight.kind == Weight::kInt4)
    run = half ? pair_product<Dot, Weight::kInt4, Scale::kHalf> : pair_product<Dot, Weight::kInt4, Scale::kBf16>;
  run(weight, count, x, first, rows, out, out_stride);
}
