// Products in float32: float32 activations with any weight, and bf16 ones where the processor has no bf16 product.
// No guard; included like tiles_elementwise.h, after the instruction set's kFloatRows, the rows of the largest tile.
// A row and an output are summed by one chain of fused multiply-adds, input by input.

constexpr size_t kFloatPackedRows = 48;  // rows that share one expansion of int4 and int8 weights
constexpr size_t kFloatBlocks = 4;       // blocks that are expanded and packed at once
constexpr size_t kFloatColumns = kFloatBlocks * kBlock + 16;  // 64 bytes more: no multiple of 4,096

// One block as float32 [64, 16]; kRounded: as bf16 values. `next` will be read later.
template <Weight W, Scale S, bool kRounded>
void widen_block(const uint8_t* w, uintptr_t next, float* out) {
  for (size_t line = 0; line < block_bytes(W); line += 64) prefetch(next + line);
  const I offset = set_int(W == Weight::kInt4 ? 8 : 0);
  for (int g = 0; g < 2; g++) {
    const F scale = load_scales<S>(w + (block_bytes(W) - 64) + 32 * g);
    for (int line = 0; line < (W == Weight::kInt4 ? 4 : 8); line++) {
      I word = load_int(w + (W == Weight::kInt4 ? 256 : 512) * g + 64 * line);
      auto put = [&](I q, int input) __attribute__((always_inline)) {
        F value = multiply(to_float(subtract_int(q, offset)), scale);
        store(out + (kGroup * g + input) * kLanes, kRounded ? round_bf16(value) : value);
      };
      if constexpr (W == Weight::kInt4) {
        const I nibble = set_int(15);
        for (int j = 0; j < 4; j++, word = shift_right<8>(word)) {
          put(and_int(word, nibble), 4 * line + j);
          put(and_int(shift_right<4>(word), nibble), 16 + 4 * line + j);
        }
      } else {
        put(shift_right_signed<24>(shift_left<24>(word)), 4 * line);
        put(shift_right_signed<24>(shift_left<16>(word)), 4 * line + 1);
        put(shift_right_signed<24>(shift_left<8>(word)), 4 * line + 2);
        put(shift_right_signed<24>(word), 4 * line + 3);
      }
    }
  }
}

// R rows [R, kFloatColumns] times one panel of bf16 pairs.
struct FloatPairs {
  template <int R>
  static void run(const uint8_t* w, uintptr_t next, size_t blocks, const float* x, bool more, float* out,
                  size_t out_stride) {
    F sum[R];
    for (int r = 0; r < R; r++) sum[r] = start_of(more, out + r * out_stride);
    const I upper = set_int(static_cast<int32_t>(0xffff0000));
    for (size_t pair = 0; pair < blocks * kBlock / 2; pair++, w += 64, next += 64, x += 2) {
      prefetch(next);
      const I both = load_int(w);
      const F even = floats(shift_left<16>(both)), odd = floats(and_int(both, upper));
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        sum[r] = fma(even, set(x[r * kFloatColumns]), sum[r]);
        sum[r] = fma(odd, set(x[r * kFloatColumns + 1]), sum[r]);
      }
    }
    for (int r = 0; r < R; r++) store(out + r * out_stride, sum[r]);
  }
};

// R rows [R, kFloatColumns] times one panel of float32 lines.
struct FloatLines {
  template <int R>
  static void run(const float* w, size_t blocks, const float* x, bool more, float* out, size_t out_stride) {
    F sum[R];
    for (int r = 0; r < R; r++) sum[r] = start_of(more, out + r * out_stride);
    for (size_t line = 0; line < blocks * kBlock; line++, w += kLanes, x++) {
      const F value = load(w);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) sum[r] = fma(value, set(x[r * kFloatColumns]), sum[r]);
    }
    for (int r = 0; r < R; r++) store(out + r * out_stride, sum[r]);
  }
};

// Rows [rows, kFloatColumns] times some blocks of one panel.
template <Weight W, Scale S, bool kRounded>
void float_panel(const uint8_t* w, uintptr_t next, size_t blocks, const float* x, size_t rows, bool more, float* out,
                 size_t out_stride) {
  alignas(64) float lines[W == Weight::kBf16 ? 16 : kFloatBlocks * kBlock * kLanes];
  if constexpr (W != Weight::kBf16)
    for (size_t b = 0; b < blocks; b++)
      widen_block<W, S, kRounded>(w + b * block_bytes(W), next + b * block_bytes(W), lines + b * kBlock * kLanes);
  const Cut cut(rows, kFloatRows);
  for (size_t t = 0; t < cut.tiles; t++) {
    const size_t from = cut.begin(t), size = cut.begin(t + 1) - from;
    if constexpr (W == Weight::kBf16) {
      static constexpr ByRows<FloatPairs, kFloatRows> by_rows;
      by_rows.table[size](w, next, blocks, x + from * kFloatColumns, more, out + from * out_stride, out_stride);
    } else {
      static constexpr ByRows<FloatLines, kFloatRows> by_rows;
      by_rows.table[size](lines, blocks, x + from * kFloatColumns, more, out + from * out_stride, out_stride);
    }
  }
}

// `at`: of the first row and column.
template <bool kFromBf16>
void pack_floats(const Rows& x, size_t at, size_t rows, size_t count, float* to) {
  for (size_t r = 0; r < rows; r++, at += x.columns, to += kFloatColumns) {
    if constexpr (kFromBf16)
      widen(static_cast<const uint16_t*>(x.values) + at, count, to);
    else
      memcpy(to, static_cast<const float*>(x.values) + at, count * sizeof(float));
  }
}

template <Weight W, Scale S, bool kFromBf16>
void float_product_of(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                      size_t out_stride) {
  alignas(64) float packed[kFloatPackedRows * kFloatColumns];
  const size_t blocks = x.columns / kBlock, panel_bytes = weight.panel_bytes();
  const Cut cut(rows, kFloatPackedRows);
  for (size_t t = 0; t < cut.tiles; t++) {
    const size_t from = cut.begin(t), size = cut.begin(t + 1) - from;
    for (size_t block = 0; block < blocks; block += kFloatBlocks) {
      const size_t some = blocks - block < kFloatBlocks ? blocks - block : kFloatBlocks;
      pack_floats<kFromBf16>(x, (first + from) * x.columns + block * kBlock, size, some * kBlock, packed);
      const uint8_t* w = weight.data + block * block_bytes(W);
      for (size_t p = 0; p < count; p++) {
        const uint8_t* next = p + 1 < count ? w + (p + 1) * panel_bytes : w + some * block_bytes(W);
        float_panel<W, S, kFromBf16>(w + p * panel_bytes, reinterpret_cast<uintptr_t>(next), some, packed, size,
                                     block > 0, out + from * out_stride + p * kLanes, out_stride);
      }
    }
  }
}

template <bool kFromBf16>
void float_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                   size_t out_stride) {
  const bool half = weight.scale == Scale::kHalf;
  auto run = float_product_of<Weight::kBf16, Scale::kBf16, kFromBf16>;
  if (weight.kind == Weight::kInt8)
    run = half ? float_product_of<Weight::kInt8, Scale::kHalf, kFromBf16>
               : float_product_of<Weight::kInt8, Scale::kBf16, kFromBf16>;
  if (weight.kind == Weight::kInt4)
    run = half ? float_product_of<Weight::kInt4, Scale::kHalf, kFromBf16>
               : float_product_of<Weight::kInt4, Scale::kBf16, kFromBf16>;
  run(weight, count, x, first, rows, out, out_stride);
}
