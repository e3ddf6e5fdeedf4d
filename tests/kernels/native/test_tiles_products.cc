// Products: int8 activations to the bit, others within float32's rounding; any cut into rows and panels to the bit.
#include "test_tiles.h"

using namespace onechip;

namespace {

// A weight as numbers, and as the kernels read it. Values are whole numbers for int4 and int8, else bf16.
struct Matrix {
  Weight kind;
  Scale scale;
  size_t panels, columns;
  std::vector<float> values;  // [16 * panels, columns]
  std::vector<float> scales;  // [16 * panels, columns / 32]
  Array<uint8_t> data;

  float value(size_t out, size_t in) const { return values[out * columns + in]; }
  float group_scale(size_t out, size_t in) const { return scales[(out * columns + in) / kGroup]; }
  Panels view() const { return {kind, scale, data.data(), columns}; }
};

void put16(uint8_t* at, uint16_t x) { std::memcpy(at, &x, sizeof x); }

uint16_t random_scale(Scale kind, Random& random) {
  if (kind == Scale::kBf16) return to_bf16(random.uniform(0.001f, 0.1f));
  return static_cast<uint16_t>((10 + random.below(5)) << 10 | random.below(1024));
}

Matrix random_matrix(Weight kind, Scale scale, size_t panels, size_t columns, Random& random) {
  Matrix m{kind, scale, panels, columns, {}, {}, {}};
  m.values.resize(panels * kLanes * columns);
  m.scales.assign(panels * kLanes * columns / kGroup, 1.0f);
  m.data.assign(panels * columns / kBlock * block_bytes(kind), 0);
  for (size_t out = 0; out < panels * kLanes; out++) {
    for (size_t in = 0; in < columns; in++) {
      uint8_t* block = m.data.data() + (out / kLanes * (columns / kBlock) + in / kBlock) * block_bytes(kind);
      const size_t lane = out % kLanes, group = in % kBlock / kGroup, k = in % kGroup;
      float& value = m.values[out * columns + in];
      if (kind == Weight::kBf16) {
        const uint16_t bits = to_bf16(random.uniform(-1, 1));
        value = from_bf16(bits);
        put16(block + in % kBlock / 2 * 64 + lane * 4 + in % 2 * 2, bits);
        continue;
      }
      if (in % kGroup == 0) {
        const uint16_t bits = random_scale(scale, random);
        m.scales[(out * columns + in) / kGroup] = scale == Scale::kBf16 ? from_bf16(bits) : from_half(bits);
        put16(block + block_bytes(kind) - 64 + group * 32 + lane * 2, bits);
      }
      // The ends of the range often: where 16-bit sums would overflow.
      const int most = kind == Weight::kInt4 ? 7 : 127;
      const int q = random.below(3) == 0 ? (out % 3 == 0 ? most : -most - 1) : random.below(2 * most + 2) - most - 1;
      value = static_cast<float>(q);
      if (kind == Weight::kInt8)
        block[group * 512 + k / 4 * 64 + lane * 4 + k % 4] = static_cast<uint8_t>(q);
      else
        block[group * 256 + k % 16 / 4 * 64 + lane * 4 + k % 4] |= static_cast<uint8_t>((q + 8) << (k >= 16 ? 4 : 0));
    }
  }
  return m;
}

// Activations in all three forms.
struct Inputs {
  size_t rows, columns;
  Array<float> f32;
  Array<uint16_t> bf16;
  Array<int8_t> int8;
  Array<float> scales;
  Array<int32_t> sums;

  Inputs(size_t rows_, size_t columns_, Random& random) : rows(rows_), columns(columns_) {
    for (size_t i = 0; i < rows * columns; i++) {
      f32.push_back(random.uniform(-2, 2));
      bf16.push_back(to_bf16(f32[i]));
      int8.push_back(static_cast<int8_t>(i / columns % 4 == 0 ? 127 : random.below(255) - 127));
    }
    for (size_t g = 0; g < rows * columns / kGroup; g++) {
      scales.push_back(random.uniform(0.01f, 0.02f));
      sums.push_back(0);
      for (int i = 0; i < kGroup; i++) sums[g] += int8[g * kGroup + i];
    }
  }

  Rows view(Activation kind) const {
    const void* values = kind == Activation::kF32    ? static_cast<const void*>(f32.data())
                         : kind == Activation::kBf16 ? static_cast<const void*>(bf16.data())
                                                     : static_cast<const void*>(int8.data());
    return {kind, values, scales.data(), sums.data(), columns};
  }
};

// The float32 result itself, as tiles.h promises it.
float exact_product(const Matrix& w, const Inputs& x, size_t row, size_t out) {
  float sum = 0;
  for (size_t g = 0; g < w.columns / kGroup; g++) {
    int32_t whole = 0;
    for (size_t i = g * kGroup; i < (g + 1) * kGroup; i++)
      whole += x.int8[row * w.columns + i] * static_cast<int32_t>(w.value(out, i));
    sum = std::fmaf(static_cast<float>(whole) * w.group_scale(out, g * kGroup), x.scales[row * w.columns / kGroup + g],
                    sum);
  }
  return sum;
}

void expect_close(const char* name, const Matrix& w, const Inputs& x, Activation kind, size_t row, size_t out,
                  float got) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < w.columns; i++) {
    float weight = w.value(out, i) * w.group_scale(out, i);
    if (kind == Activation::kBf16) weight = from_bf16(to_bf16(weight));
    const float value = kind == Activation::kBf16 ? from_bf16(x.bf16[row * x.columns + i]) : x.f32[row * x.columns + i];
    sum += static_cast<double>(weight) * value;
    size += std::fabs(static_cast<double>(weight) * value);
  }
  EXPECT(std::fabs(got - sum) <= 1e-6 * size, "%s row %zu output %zu: %g, not %g", name, row, out, got, sum);
}

constexpr float kUntouched = 12345.0f;

// All rows and panels at once, between guards.
Array<float> whole(const Tiles& tiles, const Matrix& w, const Rows& x, size_t rows, size_t stride) {
  Array<float> out((rows + 2) * stride, kUntouched);
  tiles.product(w.view(), w.panels, x, 0, rows, out.data() + stride, stride);
  return out;
}

void expect_guards(const Tiles& tiles, const Array<float>& out, size_t rows, size_t width, size_t stride) {
  for (size_t i = 0; i < out.size(); i++) {
    const bool written = i / stride >= 1 && i / stride <= rows && i % stride < width;
    EXPECT(written || out[i] == kUntouched, "%s wrote outside, at row %zu column %zu", tiles.name, i / stride - 1,
           i % stride);
  }
}

// The same in random parts.
void expect_same_in_parts(const Tiles& tiles, const Matrix& w, const Rows& x, size_t rows, const Array<float>& all,
                          size_t stride, Random& random) {
  for (size_t p = 0; p < w.panels;) {
    const size_t panels = 1 + random.below(static_cast<int>(w.panels - p));
    Panels part = w.view();
    part.data += p * part.panel_bytes();
    for (size_t r = 0; r < rows;) {
      const size_t some = 1 + random.below(static_cast<int>(rows - r));
      Array<float> out(some * panels * kLanes, kUntouched);
      tiles.product(part, panels, x, r, some, out.data(), panels * kLanes);
      for (size_t i = 0; i < out.size(); i++) {
        const float here = all[(1 + r + i / (panels * kLanes)) * stride + p * kLanes + i % (panels * kLanes)];
        EXPECT(same(out[i], here), "%s: rows %zu+%zu panels %zu+%zu of %zu x %zu differ: %.9g, not %.9g", tiles.name, r,
               some, p, panels, rows, w.panels, out[i], here);
      }
      r += some;
    }
    p += panels;
  }
}

void test_product(const Tiles& tiles, Weight kind, Scale scale, Activation activation, size_t rows, size_t panels,
                  size_t blocks) {
  Random random{0x9e3779b97f4a7c15u + rows * 1000 + panels * 100 + blocks};
  const Matrix w = random_matrix(kind, scale, panels, blocks * kBlock, random);
  const Inputs inputs(rows, w.columns, random);
  const Rows x = inputs.view(activation);
  const size_t width = panels * kLanes, stride = width + 16;
  const Array<float> all = whole(tiles, w, x, rows, stride);
  expect_guards(tiles, all, rows, width, stride);
  for (size_t r = 0; r < rows; r++) {
    for (size_t out = 0; out < width; out++) {
      const float got = all[(1 + r) * stride + out];
      if (activation != Activation::kInt8) {
        expect_close(tiles.name, w, inputs, activation, r, out, got);
        continue;
      }
      const float right = exact_product(w, inputs, r, out);
      EXPECT(same(got, right), "%s row %zu output %zu of %zu x %zu x %zu: %.9g, not %.9g", tiles.name, r, out, rows,
             panels, blocks, got, right);
    }
  }
  expect_same_in_parts(tiles, w, x, rows, all, stride, random);
}

}  // namespace

void test_products(const Tiles& tiles) {
  const size_t many[][3] = {{31, 5, 3}, {64, 3, 2}, {100, 2, 24}, {200, 5, 2}, {8, 2, 48}, {2, 9, 48}, {13, 3, 50}, {1, 9, 48}, {1, 6, 60}};
  for (Weight kind : {Weight::kBf16, Weight::kInt8, Weight::kInt4}) {
    for (Scale scale : {Scale::kBf16, Scale::kHalf}) {
      if (kind == Weight::kBf16 && scale == Scale::kHalf) continue;
      for (Activation activation : {Activation::kF32, Activation::kBf16, Activation::kInt8}) {
        if (kind == Weight::kBf16 && activation == Activation::kInt8) continue;
        for (size_t rows = 1; rows <= 17; rows++)
          for (size_t panels = 1; panels <= 5; panels++)
            test_product(tiles, kind, scale, activation, rows, panels, 1 + (rows + panels) % 3);
        for (size_t rows = 18; rows <= 40; rows++)
          test_product(tiles, kind, scale, activation, rows, 1 + rows % 3, 1 + rows % 7);
        for (const auto& size : many) test_product(tiles, kind, scale, activation, size[0], size[1], size[2]);
      }
    }
  }
}

// Bf16 products on AMX: 32 inputs at a time, the even ones and the odd ones by chains of their own, as the manual has
// TDPBF16PS.
void test_tile_order(const Tiles& amx) {
  Random random{17};
  const size_t rows = 21, panels = 3, columns = 5 * kBlock;
  const Matrix w = random_matrix(Weight::kBf16, Scale::kBf16, panels, columns, random);
  const Inputs x(rows, columns, random);
  const Array<float> all = whole(amx, w, x.view(Activation::kBf16), rows, panels * kLanes);
  for (size_t r = 0; r < rows; r++) {
    for (size_t out = 0; out < panels * kLanes; out++) {
      float sum = 0;
      for (size_t i = 0; i < columns; i += 32) {
        float part[2] = {};
        for (size_t k = i; k < i + 32; k++)
          part[k % 2] = std::fmaf(from_bf16(x.bf16[r * columns + k]), w.value(out, k), part[k % 2]);
        sum += part[0] + part[1];
      }
      const float got = all[(1 + r) * panels * kLanes + out];
      EXPECT(same(got, sum), "%s row %zu output %zu: %.9g, not %.9g", amx.name, r, out, got, sum);
    }
  }
}

// All products of two instruction sets.
void test_same_bits(const Tiles& one, const Tiles& other) {
  for (Weight kind : {Weight::kBf16, Weight::kInt8, Weight::kInt4}) {
    for (Activation activation : {Activation::kBf16, Activation::kInt8}) {
      if (kind == Weight::kBf16 && activation == Activation::kInt8) continue;
      for (size_t rows : {1, 7, 16, 20, 40, 70}) {
        Random random{rows};
        const Matrix w = random_matrix(kind, Scale::kBf16, 3, 9 * kBlock, random);
        const Inputs x(rows, w.columns, random);
        const Array<float> here = whole(one, w, x.view(activation), rows, 3 * kLanes);
        const Array<float> there = whole(other, w, x.view(activation), rows, 3 * kLanes);
        for (size_t i = 0; i < here.size(); i++)
          EXPECT(same(here[i], there[i]), "%s and %s differ, kind %d, %zu rows, at %zu: %.9g, %.9g", one.name,
                 other.name, static_cast<int>(kind), rows, i, here[i], there[i]);
      }
    }
  }
}

namespace {

const Tiles* spoiled_one;
Activation spoiled_kind;
size_t spoiled_least;

void spoiled_product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
                     size_t out_stride) {
  spoiled_one->product(weight, count, x, first, rows, out, out_stride);
  float& last = out[(rows - 1) * out_stride + count * kLanes - 1];
  if (x.kind == spoiled_kind && rows >= spoiled_least) last = float_of(bits_of(last) ^ 1);
}

}  // namespace

// The check of an instruction set before its use: it passes one that works, and sees one wrong bit.
void test_same(const Tiles& one, const Tiles& other) {
  EXPECT(same_products(one, other), "%s, %s", one.name, other.name);
  spoiled_one = &one;
  Tiles spoiled = one;
  spoiled.product = spoiled_product;
  for (Activation kind : {Activation::kInt8, Activation::kBf16}) {
    for (size_t least : {1, 2}) {
      spoiled_kind = kind, spoiled_least = least;
      EXPECT(!same_products(spoiled, other), "%s spoiled, %s", one.name, other.name);
    }
  }
}
