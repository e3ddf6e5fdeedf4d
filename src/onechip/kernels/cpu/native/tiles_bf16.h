// Products of bf16 activations by vdpbf16ps. No guard; included by tiles_avx512_bf16.cc after tiles_512.h.
// A row and an output are summed by one chain of vdpbf16ps, pair of inputs by pair.

constexpr int kFewRows = 6;           // rows of a tile that is four panels wide
constexpr int kManyRows = 12;         // rows of a tile that is two panels wide
constexpr size_t kPackedRows = 96;    // rows that share one expansion of int4 and int8 weights
constexpr size_t kPairBlocks = 4;     // blocks that are expanded and packed at once
constexpr size_t kPackedColumns = kPairBlocks * kBlock + 32;  // 64 bytes more: no multiple of 4,096

[[gnu::always_inline]] inline __m512bh as_bf16(I x) {
  __m512bh y;
  memcpy(&y, &x, sizeof y);
  return y;
}

[[gnu::always_inline]] inline F dot_pair(F sum, I weights, I x) {
  return _mm512_dpbf16_ps(sum, as_bf16(weights), as_bf16(x));
}

// R rows times P panels over some blocks of bf16 pairs; rows lie `stride` apart, or kPackedColumns where that is 0.
template <int P>
struct PairTile {
  template <int R>
  static void run(const uint8_t* w, size_t panel_bytes, size_t blocks, const uint16_t* x, size_t stride, bool more,
                  float* out, size_t out_stride) {
    if (stride == 0)
      tile<R>(w, panel_bytes, blocks, x, kPackedColumns, more, out, out_stride);
    else
      tile<R>(w, panel_bytes, blocks, x, stride, more, out, out_stride);
  }

  template <int R>
  [[gnu::always_inline]] static inline void tile(const uint8_t* w, size_t panel_bytes, size_t blocks,
                                                 const uint16_t* x, size_t stride, bool more, float* out,
                                                 size_t out_stride) {
    typedef int32_t __attribute__((may_alias, aligned(2))) Pair;
    F sum[R][P];
    for (int r = 0; r < R; r++)
      for (int p = 0; p < P; p++) sum[r][p] = start_of(more, out + r * out_stride + p * kLanes);
    for (size_t pair = 0; pair < blocks * kBlock / 2; pair++, w += 64, x += 2) {
      I weights[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) weights[p] = load_int(w + p * panel_bytes);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const I both = set_int(*reinterpret_cast<const Pair*>(x + r * stride));
#pragma GCC unroll 4
        for (int p = 0; p < P; p++) sum[r][p] = dot_pair(sum[r][p], weights[p], both);
      }
    }
    for (int r = 0; r < R; r++)
      for (int p = 0; p < P; p++) store(out + r * out_stride + p * kLanes, sum[r][p]);
  }
};

// One block of int4 or int8 as bf16 pairs, 2,048 bytes.
template <Weight W, Scale S>
void expand_block(const uint8_t* w, uint8_t* out) {
  // Of lanes 0..15 (lower inputs) and 16..31 (upper inputs) of a vcvtne2ps2bf16: lane by lane the two of a pair.
  const I interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                        5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const F value_of = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
  for (int g = 0; g < 2; g++) {
    const F scale = load_scales<S>(w + (block_bytes(W) - 64) + 32 * g);
    auto put = [&](F lower, F upper, int pair) __attribute__((always_inline)) {
      const __m512bh both = _mm512_cvtne2ps_pbh(multiply(upper, scale), multiply(lower, scale));
      I words;
      memcpy(&words, &both, sizeof words);
      _mm512_storeu_si512(out + (kGroup / 2 * g + pair) * 64, _mm512_maskz_permutexvar_epi16(~0u, interleave, words));
    };
    for (int line = 0; line < (W == Weight::kInt4 ? 4 : 8); line++) {
      const I word = load_int(w + (W == Weight::kInt4 ? 256 : 512) * g + 64 * line);
      if constexpr (W == Weight::kInt4) {
        // vpermps looks at the lowest four bits of a lane alone: it masks and converts at once.
        auto look = [&](I at) __attribute__((always_inline)) {
          return _mm512_maskz_permutexvar_ps(0xffff, at, value_of);
        };
        put(look(word), look(shift_right<8>(word)), 2 * line);
        put(look(shift_right<16>(word)), look(shift_right<24>(word)), 2 * line + 1);
        put(look(shift_right<4>(word)), look(shift_right<12>(word)), 8 + 2 * line);
        put(look(shift_right<20>(word)), look(shift_right<28>(word)), 8 + 2 * line + 1);
      } else {
        put(to_float(shift_right_signed<24>(shift_left<24>(word))),
            to_float(shift_right_signed<24>(shift_left<16>(word))), 2 * line);
        put(to_float(shift_right_signed<24>(shift_left<8>(word))), to_float(shift_right_signed<24>(word)),
            2 * line + 1);
      }
    }
  }
}

// Panels from `p` on of which a tile takes P; `w` is that of panel p.
template <int P, int Most>
[[gnu::always_inline]] inline void pair_rows(const uint8_t* w, size_t panel_bytes, size_t blocks, const uint16_t* x,
                                             size_t stride, size_t rows, bool more, float* out, size_t out_stride) {
  static constexpr ByRows<PairTile<P>, Most> by_rows;
  const size_t step = stride == 0 ? kPackedColumns : stride;
  const Cut cut(rows, Most);
  for (size_t t = 0; t < cut.tiles; t++) {
    const size_t from = cut.begin(t);
    by_rows.table[cut.begin(t + 1) - from](w, panel_bytes, blocks, x + from * step, stride, more,
                                           out + from * out_stride, out_stride);
  }
}

void pair_tiles(size_t panels, const uint8_t* w, size_t panel_bytes, size_t blocks, const uint16_t* x, size_t stride,
                size_t rows, bool more, float* out, size_t out_stride) {
  if (panels == 4)
    pair_rows<4, kFewRows>(w, panel_bytes, blocks, x, stride, rows, more, out, out_stride);
  else if (panels == 3)
    pair_rows<3, kFewRows>(w, panel_bytes, blocks, x, stride, rows, more, out, out_stride);
  else if (panels == 2)
    pair_rows<2, kManyRows>(w, panel_bytes, blocks, x, stride, rows, more, out, out_stride);
  else
    pair_rows<1, kManyRows>(w, panel_bytes, blocks, x, stride, rows, more, out, out_stride);
}

template <Weight W, Scale S>
void pair_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                  size_t out_stride) {
  const size_t blocks = x.columns / kBlock, panel_bytes = weight.panel_bytes();
  const uint16_t* values = static_cast<const uint16_t*>(x.values) + first * x.columns;
  const size_t wide = rows <= kFewRows ? 4 : 2;
  if (W == Weight::kBf16 && rows <= kFewRows) {
    for (size_t p = 0; p < count; p += wide) {
      const size_t panels = count - p < wide ? count - p : wide;
      pair_tiles(panels, weight.data + p * panel_bytes, panel_bytes, blocks, values, x.columns, rows, false,
                 out + p * kLanes, out_stride);
    }
    return;
  }
  alignas(64) uint16_t packed[kPackedRows * kPackedColumns];
  alignas(64) uint8_t pairs[W == Weight::kBf16 ? 64 : 4 * kPairBlocks * block_bytes(Weight::kBf16)];
  const Cut cut(rows, kPackedRows);
  for (size_t t = 0; t < cut.tiles; t++) {
    const size_t from = cut.begin(t), size = cut.begin(t + 1) - from;
    for (size_t block = 0; block < blocks; block += kPairBlocks) {
      const size_t some = blocks - block < kPairBlocks ? blocks - block : kPairBlocks;
      for (size_t r = 0; r < size; r++)
        memcpy(packed + r * kPackedColumns, values + (from + r) * x.columns + block * kBlock,
               some * kBlock * sizeof(uint16_t));
      for (size_t p = 0; p < count; p += wide) {
        const size_t panels = count - p < wide ? count - p : wide;
        const uint8_t* w = weight.data + p * panel_bytes + block * block_bytes(W);
        size_t step = panel_bytes;
        if constexpr (W != Weight::kBf16) {
          step = some * block_bytes(Weight::kBf16);
          for (size_t q = 0; q < panels; q++)
            for (size_t b = 0; b < some; b++)
              expand_block<W, S>(w + q * panel_bytes + b * block_bytes(W),
                                 pairs + q * step + b * block_bytes(Weight::kBf16));
          w = pairs;
        }
        pair_tiles(panels, w, step, some, packed, 0, size, block > 0, out + from * out_stride + p * kLanes,
                   out_stride);
      }
    }
  }
}

void bf16_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                  size_t out_stride) {
  const bool half = weight.scale == Scale::kHalf;
  auto run = pair_product<Weight::kBf16, Scale::kBf16>;
  if (weight.kind == Weight::kInt8)
    run = half ? pair_product<Weight::kInt8, Scale::kHalf> : pair_product<Weight::kInt8, Scale::kBf16>;
  if (weight.kind == Weight::kInt4)
    run = half ? pair_product<Weight::kInt4, Scale::kHalf> : pair_product<Weight::kInt4, Scale::kBf16>;
  run(weight, count, x, first, rows, out, out_stride);
}
