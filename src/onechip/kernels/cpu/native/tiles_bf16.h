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

// Bf16 pairs of some panels over some blocks, and what will be read after them.
struct Pairs {
  const uint8_t* at;
  size_t panel_bytes, blocks;
  uintptr_t next;
};

// R rows times P panels; rows lie `stride` apart, or kPackedColumns where that is 0.
template <int P>
struct PairTile {
  template <int R>
  static void run(Pairs w, const uint16_t* x, size_t stride, bool more, float* out, size_t out_stride) {
    if (stride == 0)
      tile<R>(w, x, kPackedColumns, more, out, out_stride);
    else
      tile<R>(w, x, stride, more, out, out_stride);
  }

  template <int R>
  [[gnu::always_inline]] static inline void tile(Pairs w, const uint16_t* x, size_t stride, bool more, float* out,
                                                 size_t out_stride) {
    typedef int32_t __attribute__((may_alias, aligned(2))) Pair;
    F sum[R][P];
    for (int r = 0; r < R; r++)
      for (int p = 0; p < P; p++) sum[r][p] = start_of(more, out + r * out_stride + p * kLanes);
    for (size_t pair = 0; pair < w.blocks * kBlock / 2; pair++, x += 2) {
      I weights[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) {
        weights[p] = load_int(w.at + p * w.panel_bytes + pair * 64);
        if constexpr (P <= 2) prefetch(w.next + p * w.panel_bytes + pair * 64);
      }
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

// One block of int4 or int8 as bf16 pairs, 2,048 bytes; `next` will be read later.
template <Weight W, Scale S>
void expand_block(const uint8_t* w, uintptr_t next, uint8_t* out) {
  for (size_t line = 0; line < block_bytes(W); line += 64) prefetch(next + line);
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

template <int P, int Most>
void pair_rows(Pairs w, const uint16_t* x, size_t stride, size_t rows, bool more, float* out, size_t out_stride) {
  static constexpr ByRows<PairTile<P>, Most> by_rows;
  const size_t step = stride == 0 ? kPackedColumns : stride;
  const Cut cut(rows, Most);
  for (size_t t = 0; t < cut.tiles; t++) {
    const size_t from = cut.begin(t);
    by_rows.table[cut.begin(t + 1) - from](w, x + from * step, stride, more, out + from * out_stride, out_stride);
  }
}

// Any rows times up to four panels, in tiles.
void pair_tiles(size_t panels, Pairs w, const uint16_t* x, size_t stride, size_t rows, bool more, float* out,
                size_t out_stride) {
  constexpr decltype(&pair_rows<1, kManyRows>) by_panels[] = {nullptr, pair_rows<1, kManyRows>,
                                                              pair_rows<2, kManyRows>, pair_rows<3, kFewRows>,
                                                              pair_rows<4, kFewRows>};
  by_panels[panels](w, x, stride, rows, more, out, out_stride);
}

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
template <Weight W, Scale S>
void few_rows(const Panels& weight, size_t count, const uint16_t* values, size_t columns, size_t rows, float* out,
              size_t out_stride) {
  PairSource<W, S> source(weight);
  const size_t blocks = columns / kBlock, chunk = W == Weight::kBf16 ? blocks : kPairBlocks;
  for (size_t p = 0; p < count; p += 4) {
    const size_t panels = count - p < 4 ? count - p : 4;
    for (size_t block = 0; block < blocks; block += chunk) {
      const size_t some = blocks - block < chunk ? blocks - block : chunk;
      const uint8_t* next = block + some < blocks ? source.find(p, block + some) : source.find(p + panels, 0);
      pair_tiles(panels, source.pairs(p, panels, block, some, next), values + block * kBlock, columns, rows, block > 0,
                 out + p * kLanes, out_stride);
    }
  }
}

// Some blocks of up to kPackedRows rows side by side, then all panels over them, two at a time.
template <Weight W, Scale S>
void many_rows(const Panels& weight, size_t count, const uint16_t* values, size_t columns, size_t rows, float* out,
               size_t out_stride) {
  PairSource<W, S> source(weight);
  alignas(64) uint16_t packed[kPackedRows * kPackedColumns];
  const size_t blocks = columns / kBlock;
  for (size_t block = 0; block < blocks; block += kPairBlocks) {
    const size_t some = blocks - block < kPairBlocks ? blocks - block : kPairBlocks;
    for (size_t r = 0; r < rows; r++)
      memcpy(packed + r * kPackedColumns, values + r * columns + block * kBlock, some * kBlock * sizeof(uint16_t));
    for (size_t p = 0; p < count; p += 2) {
      const size_t panels = count - p < 2 ? count - p : 2;
      const uint8_t* next = p + panels < count ? source.find(p + panels, block) : source.find(0, block + some);
      pair_tiles(panels, source.pairs(p, panels, block, some, next), packed, 0, rows, block > 0, out + p * kLanes,
                 out_stride);
    }
  }
}

template <Weight W, Scale S>
void pair_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                  size_t out_stride) {
  const uint16_t* values = static_cast<const uint16_t*>(x.values) + first * x.columns;
  if (rows <= kFewRows) return few_rows<W, S>(weight, count, values, x.columns, rows, out, out_stride);
  const Cut cut(rows, kPackedRows);
  for (size_t t = 0; t < cut.tiles; t++) {
    const size_t from = cut.begin(t);
    many_rows<W, S>(weight, count, values + from * x.columns, x.columns, cut.begin(t + 1) - from,
                    out + from * out_stride, out_stride);
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
