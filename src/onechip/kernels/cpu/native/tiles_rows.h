// How products cut rows into tiles. No guard; included like tiles_elementwise.h, after F and its functions.

// Rows in tiles of nearly the same size, none above `most`: 13 rows of at most 12 are 7 and 6, not 12 and 1. Tiles
// begin at multiples of `unit`, which `most` is one of.
struct Cut {
  size_t rows, tiles, unit;

  Cut(size_t rows_, size_t most, size_t unit_ = 1) : rows(rows_), tiles((rows_ + most - 1) / most), unit(unit_) {}
  size_t begin(size_t tile) const {
    const size_t even = (rows * tile / tiles + unit - 1) / unit * unit;
    return even < rows ? even : rows;
  }
};

// Scales of one group's 16 outputs as float32.
template <Scale S>
[[gnu::always_inline]] inline F load_scales(const uint8_t* at) {
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(at);
  return S == Scale::kBf16 ? load_bf16(scales) : load_half(scales);
}

[[gnu::always_inline]] inline F start_of(bool more, const float* out) { return more ? load(out) : set(0.0f); }

// table[R] = T::template run<R>, for R in 1..Most.
template <class T, int Most>
struct ByRows {
  decltype(&T::template run<1>) table[Most + 1];

  constexpr ByRows() : table{} { fill<Most>(); }
  template <int R>
  constexpr void fill() {
    table[R] = &T::template run<R>;
    if constexpr (R > 1) fill<R - 1>();
  }
};

// Into the second-level cache. With several rows to compute, the processor does not fetch far enough ahead by itself:
// on Zen 4, 8 rows of bf16 weights from memory went from 14 to 23 GB/s. An address, for it may lie beyond the weight.
[[gnu::always_inline]] inline void prefetch(uintptr_t at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
}
