// Weights as checkpoints store them in, panels (layout.h) out. Called by kernels/cpu/weights.py through ctypes.
//
// Rows come as pointers, 16 for each panel; where there is no row (null) the panel has zeros.

#include <emmintrin.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "layout.h"
#include "team.h"

namespace onechip {
namespace {

using RowPointers = const uint8_t* const*;

// `count` elements of a row from `first` on; beyond its end, or without a row, zeros, which are bytes `zero`.
template <typename T, size_t kCount>
void load(const uint8_t* row, size_t columns, size_t first, int zero, T (&values)[kCount]) {
  const size_t there = row == nullptr || first >= columns ? 0 : std::min(kCount, columns - first);
  if (there < kCount) std::memset(values, zero, sizeof values);
  if (there > 0) std::memcpy(values, row + first * sizeof(T), there * sizeof(T));
}

// Word w of lane l goes to place [w, l].
template <int kWords>
void interleave(const uint32_t (&lanes)[kLanes][kWords], uint8_t* out) {
  static_assert(kWords % 4 == 0);
  for (int w = 0; w < kWords; w += 4) {
    for (int l = 0; l < kLanes; l += 4) {
      const auto row = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(&lanes[l + i][w])); };
      const __m128i low01 = _mm_unpacklo_epi32(row(0), row(1)), low23 = _mm_unpacklo_epi32(row(2), row(3));
      const __m128i high01 = _mm_unpackhi_epi32(row(0), row(1)), high23 = _mm_unpackhi_epi32(row(2), row(3));
      const auto store = [&](int i, __m128i value) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + (size_t{kLanes} * (w + i) + l) * 4), value);
      };
      store(0, _mm_unpacklo_epi64(low01, low23));
      store(1, _mm_unpackhi_epi64(low01, low23));
      store(2, _mm_unpacklo_epi64(high01, high23));
      store(3, _mm_unpackhi_epi64(high01, high23));
    }
  }
}

// Values that keep their order within a word: pairs of bf16, quads of int8.
template <typename T>
void pack_values(RowPointers rows, size_t columns, size_t first, uint8_t* out) {
  uint32_t lanes[kLanes][kBlock * sizeof(T) / 4];
  for (int lane = 0; lane < kLanes; ++lane) {
    T values[kBlock];
    load(rows[lane], columns, first, 0, values);
    std::memcpy(lanes[lane], values, sizeof values);
  }
  interleave(lanes, out);
}

// The scale of each lane's group that begins at `column`.
void pack_scales(RowPointers scales, size_t columns, size_t column, uint8_t* out) {
  for (int lane = 0; lane < kLanes; ++lane) {
    uint16_t scale[1];
    load(scales[lane], columns / kGroup, column / kGroup, 0, scale);
    std::memcpy(out + lane * 2, scale, 2);
  }
}

void pack_block_int8(RowPointers rows, RowPointers scales, size_t columns, size_t first, uint8_t* out) {
  pack_values<int8_t>(rows, columns, first, out);
  for (int group = 0; group < kBlock / kGroup; ++group)
    pack_scales(scales, columns, first + group * kGroup, out + 1024 + group * kLanes * 2);
}

// A group's 16 bytes have inputs 2k and 2k + 1 in byte k; a panel's have k and k + 16.
void pack_block_int4(RowPointers rows, RowPointers scales, size_t columns, size_t first, uint8_t* out) {
  const __m128i nibble = _mm_set1_epi8(15);
  for (int group = 0; group < kBlock / kGroup; ++group) {
    const size_t column = first + group * kGroup;
    uint32_t lanes[kLanes][4];
    for (int lane = 0; lane < kLanes; ++lane) {
      uint8_t pairs[16];
      load(rows[lane], columns / 2, column / 2, 0x88, pairs);
      const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pairs));
      const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pairs + 8));
      const __m128i even = _mm_or_si128(_mm_and_si128(low, nibble), _mm_slli_epi16(_mm_and_si128(high, nibble), 4));
      const __m128i odd = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(low, 4), nibble), _mm_andnot_si128(nibble, high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes[lane]), _mm_unpacklo_epi8(even, odd));
    }
    interleave(lanes, out + 256 * group);
    pack_scales(scales, columns, column, out + 512 + group * kLanes * 2);
  }
}

// block(first row, first column, memory of the block) for every block of a weight.
template <typename Block>
void each_block(Weight kind, size_t panels, size_t columns, uint8_t* out, const Block& block) {
  const size_t blocks = (columns + kBlock - 1) / kBlock;
  Team::get().run(panels, [&](size_t panel, int) {
    for (size_t b = 0; b < blocks; ++b)
      block(panel * kLanes, b * kBlock, out + (panel * blocks + b) * block_bytes(kind));
  });
}

}  // namespace
}  // namespace onechip

extern "C" void onechip_pack_bf16(onechip::RowPointers rows, size_t panels, size_t columns, uint8_t* out) {
  onechip::each_block(onechip::Weight::kBf16, panels, columns, out, [=](size_t row, size_t first, uint8_t* block) {
    onechip::pack_values<uint16_t>(rows + row, columns, first, block);
  });
}

// Of both: `columns` is a multiple of 32; `scales` has a pointer beside each of `rows`.
extern "C" void onechip_pack_int8(onechip::RowPointers rows, onechip::RowPointers scales, size_t panels,
                                  size_t columns, uint8_t* out) {
  onechip::each_block(onechip::Weight::kInt8, panels, columns, out, [=](size_t row, size_t first, uint8_t* block) {
    onechip::pack_block_int8(rows + row, scales + row, columns, first, block);
  });
}

extern "C" void onechip_pack_int4(onechip::RowPointers rows, onechip::RowPointers scales, size_t panels,
                                  size_t columns, uint8_t* out) {
  onechip::each_block(onechip::Weight::kInt4, panels, columns, out, [=](size_t row, size_t first, uint8_t* block) {
    onechip::pack_block_int4(rows + row, scales + row, columns, first, block);
  });
}
