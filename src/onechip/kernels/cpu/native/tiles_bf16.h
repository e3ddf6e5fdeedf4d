// Products of bf16 activations by vdpbf16ps. No guard; included by tiles_avx512_bf16.cc after tiles_pairs.h.
// A row and an output are summed by one chain of vdpbf16ps, pair of inputs by pair.

[[gnu::always_inline]] inline __m512bh as_bf16(I x) {
  __m512bh y;
  memcpy(&y, &x, sizeof y);
  return y;
}

[[gnu::always_inline]] inline F dot_pair(F sum, I weights, I x) {
  return _mm512_dpbf16_ps(sum, as_bf16(weights), as_bf16(x));
}

// R rows times P panels.
template <int P>
struct PairTile {
  template <int R>
  static void run(Pairs w, PairRows x, bool more, float* out, size_t out_stride) {
    if (x.stride == 0)
      tile<R>(w, x.at, kPackedColumns, more, out, out_stride);
    else
      tile<R>(w, x.at, x.stride, more, out, out_stride);
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

// As tiles_pairs.h wants it.
struct Vdpbf16ps {
  static constexpr size_t kFewRows = 6;    // rows of a tile that is four panels wide
  static constexpr size_t kMostRows = 12;  // rows of a tile that is two panels wide
  static constexpr size_t kManyPanels = 2, kRowUnit = 1;

  struct Use {
    explicit Use(size_t) {}
  };

  template <int P, int Most>
  static void rows_of(Pairs w, PairRows x, size_t rows, bool more, float* out, size_t out_stride) {
    static constexpr ByRows<PairTile<P>, Most> by_rows;
    const Cut cut(rows, Most);
    for (size_t t = 0; t < cut.tiles; t++) {
      const size_t from = cut.begin(t);
      const PairRows some{x.at + from * x.step(), x.stride};
      by_rows.table[cut.begin(t + 1) - from](w, some, more, out + from * out_stride, out_stride);
    }
  }

  static void tiles(size_t panels, Pairs w, PairRows x, size_t rows, bool more, float* out, size_t out_stride) {
    constexpr decltype(&rows_of<1, kMostRows>) by_panels[] = {nullptr, rows_of<1, kMostRows>, rows_of<2, kMostRows>,
                                                              rows_of<3, kFewRows>, rows_of<4, kFewRows>};
    by_panels[panels](w, x, rows, more, out, out_stride);
  }
};
