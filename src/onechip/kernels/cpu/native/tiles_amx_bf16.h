// Products of pairs of bf16, as tiles_pairs.h wants them. No guard; part of tiles_amx.h. A row and an output are
// summed 32 inputs at a time, in the unit's own order within them. That order is not vdpbf16ps's, so that one row
// alone is multiplied here too: its result must not depend on how many there are.

template <class T>
struct AmxPairs {
  static constexpr size_t kFewRows = kTileRows, kRowUnit = kTileRows;
  static constexpr size_t kManyPanels = 2;

  struct Use : TilesInUse<T> {
    explicit Use(size_t rows) : TilesInUse<T>(rows, kTileRows) {}
  };

  // Q tiles of rows times P panels. Tiles of rows have all the shape that the product's first has. If the last has
  // fewer rows in truth, its sums stay in memory of their own.
  template <int Q, int P>
  static void run(Pairs w, PairRows x, size_t rows, size_t shape, bool more, float* out, size_t out_stride) {
    static_assert(Q * P <= kRowTiles - kSums && Q <= 2);
    alignas(64) float room[kTileRows][P * kLanes];
    const size_t last = rows - (Q - 1) * kTileRows;
    float* const tail = out + (Q - 1) * kTileRows * out_stride;
    const bool whole = last == shape;
    const auto place = [&](int q) { return whole || q + 1 < Q ? out + q * kTileRows * out_stride : room[0]; };
    const auto pitch = [&](int q) { return (whole || q + 1 < Q ? out_stride : P * kLanes) * sizeof(float); };
    if (more && !whole)
      for (size_t r = 0; r < last; r++) memcpy(room[r], tail + r * out_stride, sizeof room[r]);
    each<Q * P>([&](auto n) __attribute__((always_inline)) {
      constexpr int t = n, q = t / P, p = t % P;
      if (more)
        T::template load<kSums + t>(place(q) + p * kLanes, pitch(q));
      else
        T::template zero<kSums + t>();
    });
    multiply_tiles<Q, P>(w, x);
    each<Q * P>([&](auto n) __attribute__((always_inline)) {
      constexpr int t = n, q = t / P, p = t % P;
      T::template store<kSums + t>(place(q) + p * kLanes, pitch(q));
    });
    if (!whole)
      for (size_t r = 0; r < last; r++) memcpy(tail + r * out_stride, room[r], sizeof room[r]);
  }

  template <int Q, int P>
  [[gnu::always_inline]] static inline void multiply_tiles(Pairs w, PairRows x) {
    constexpr size_t kInputs = 32, kBytes = kInputs * kLanes * sizeof(uint16_t);
    for (size_t i = 0; i < w.blocks * (kBlock / kInputs); i++) {
      each<Q>([&](auto q) __attribute__((always_inline)) {
        T::template load<kRowTiles + q>(x.at + q * kTileRows * x.step() + i * kInputs, x.step() * sizeof(uint16_t));
      });
      each<P>([&](auto n) __attribute__((always_inline)) {
        constexpr int p = n, b = kWeightTiles + p % 2;
        T::template load<b>(w.at + p * w.panel_bytes + i * kBytes, 64);
        if (w.next != 0)
          for (size_t line = 0; line < kBytes; line += 64) prefetch(w.next + p * w.panel_bytes + i * kBytes + line);
        each<Q>([&](auto q) __attribute__((always_inline)) {
          T::template dot_bf16<kSums + q * P + p, kRowTiles + q, b>();
        });
      });
    }
  }

  template <int P>
  static void rows_of(Pairs w, PairRows x, size_t rows, bool more, float* out, size_t out_stride) {
    // Rows in place are all that there are, and their tile has just so many rows.
    const size_t shape = x.stride == 0 ? kTileRows : rows;
    if (P > 2 || x.stride != 0) w.next = 0;  // read in order: the processor sees that by itself
    for (size_t r = 0; r < rows;) {
      const size_t left = rows - r, step = P <= 2 && left > kTileRows ? 2 * kTileRows : kTileRows;
      const size_t some = left < step ? left : step;
      const PairRows from{x.at + r * x.step(), x.stride};
      if constexpr (P <= 2) {
        if (step > kTileRows) run<2, P>(w, from, some, shape, more, out + r * out_stride, out_stride);
      }
      if (step == kTileRows) run<1, P>(w, from, some, shape, more, out + r * out_stride, out_stride);
      w.next = 0;  // fetched
      r += some;
    }
  }

  static void tiles(size_t panels, Pairs w, PairRows x, size_t rows, bool more, float* out, size_t out_stride) {
    constexpr decltype(&rows_of<1>) by_panels[] = {nullptr, rows_of<1>, rows_of<2>, rows_of<3>, rows_of<4>};
    by_panels[panels](w, x, rows, more, out, out_stride);
  }
};
