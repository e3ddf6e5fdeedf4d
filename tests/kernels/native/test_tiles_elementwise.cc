// Functions on rows of numbers: against double, and to the bit against another instruction set.
#include <limits>

#include "test_tiles.h"

using namespace onechip;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kUntouched = 12345.0f;
const size_t kCounts[] = {1, 2, 7, 15, 16, 17, 31, 33, 48, 63, 64, 65, 80, 100, 127, 200, 1000};

Array<float> numbers(size_t count, float low, float high) {
  Random random{count + 77};
  Array<float> x;
  for (size_t i = 0; i < count; i++) x.push_back(random.uniform(low, high));
  return x;
}

void expect_all_same(const char* what, const Array<float>& a, const Array<float>& b) {
  for (size_t i = 0; i < a.size(); i++)
    EXPECT(same(a[i], b[i]), "%s differs between instruction sets at %zu: %.9g, %.9g", what, i, a[i], b[i]);
}

// 0.5 x (1 + tanh u) as x sigmoid(2 u), which cancels nothing.
double gelu(double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double silu(double x) { return x / (1 + std::exp(-x)); }

using Gated = void (*)(const float*, const float*, size_t, float*);

// `exponent` bounds what e is raised to at x: its rounding to float32 shows in the result.
void test_gated(const char* what, Gated call, Gated other, double (*right)(double), double (*exponent)(double)) {
  for (size_t count : kCounts) {
    const Array<float> gate = numbers(count, -9, 9), up = numbers(count + 1, -2, 2);
    Array<float> out(count + 1, kUntouched), there(count + 1, kUntouched);
    call(gate.data(), up.data(), count, out.data());
    other(gate.data(), up.data(), count, there.data());
    expect_all_same(what, out, there);
    for (size_t i = 0; i < count; i++) {
      const double value = right(gate[i]) * up[i];
      const double error = (6e-7 + 2e-7 * exponent(gate[i])) * std::fabs(value) + 1e-30;
      EXPECT(std::fabs(out[i] - value) <= error, "%s(%g) * %g: %g, not %g", what, gate[i], up[i], out[i], value);
    }
    EXPECT(out[count] == kUntouched, "%s wrote past %zu", what, count);
  }
  Array<float> gate{0.0f, 1e-30f, 60.0f, 1e10f, -60.0f, -1e10f, kInf, kNan}, up(8, 1.0f), out(8);
  call(gate.data(), up.data(), 8, out.data());
  for (int i : {0, 4, 5}) EXPECT(std::fabs(out[i]) <= 1e-20f, "%s(%g): %g", what, gate[i], out[i]);
  for (int i : {2, 3, 6}) EXPECT(out[i] == gate[i], "%s(%g): %g", what, gate[i], out[i]);
  EXPECT(same(out[1], 5e-31f), "%s(1e-30): %g", what, out[1]);
  EXPECT(std::isnan(out[7]), "%s(NaN): %g", what, out[7]);
}

void test_softcap(const Tiles& tiles, const Tiles& other) {
  for (size_t count : kCounts) {
    for (float size : {0.5f, 20.0f, 300.0f}) {
      const Array<float> x = numbers(count, -size, size);
      Array<float> out = x, there = x;
      out.push_back(kUntouched), there.push_back(kUntouched);
      tiles.softcap(out.data(), count, 30.0f);
      other.softcap(there.data(), count, 30.0f);
      expect_all_same("softcap", out, there);
      for (size_t i = 0; i < count; i++) {
        const double right = 30 * std::tanh(x[i] / 30.0);
        EXPECT(std::fabs(out[i] - right) <= 5e-7 * std::fabs(right), "softcap(%g): %.9g, not %.9g", x[i], out[i],
               right);
      }
      EXPECT(out[count] == kUntouched, "softcap wrote past %zu", count);
    }
  }
  Array<float> x{kInf, -kInf, kNan, 0.0f, 1e30f};
  tiles.softcap(x.data(), 5, 30.0f);
  EXPECT(x[0] == 30 && x[1] == -30 && std::isnan(x[2]) && x[3] == 0 && x[4] == 30, "softcap at the ends: %g %g %g %g",
         x[0], x[1], x[2], x[4]);
}

void test_conversions(const Tiles& tiles) {
  Array<float> x = numbers(1000, -100, 100);
  for (uint32_t upper : {0x3f80u, 0x3f81u, 0x0000u, 0x0001u, 0x7f7fu, 0xff7fu, 0x8001u})
    for (uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) x.push_back(float_of(upper << 16 | lower));
  for (float end : {kInf, -kInf, kNan, float_of(0x7f800001)}) x.push_back(end);
  for (size_t count : {x.size(), size_t{1}, size_t{15}, size_t{33}}) {
    Array<uint16_t> out(count + 1, 0x1234);
    tiles.narrow(x.data() + x.size() - count, count, out.data());
    for (size_t i = 0; i < count; i++) {
      const float from = x[x.size() - count + i];
      EXPECT(out[i] == to_bf16(from), "narrow(%g): %04x, not %04x", from, out[i], to_bf16(from));
    }
    EXPECT(out[count] == 0x1234, "narrow wrote past %zu", count);
    Array<float> back(count + 1, kUntouched);
    tiles.widen(out.data(), count, back.data());
    for (size_t i = 0; i < count; i++) EXPECT(same(back[i], from_bf16(out[i])), "widen(%04x): %g", out[i], back[i]);
    EXPECT(back[count] == kUntouched, "widen wrote past %zu", count);
  }
}

void test_to_bf16(const Tiles& tiles) {
  for (size_t count : kCounts) {
    const Array<float> x = numbers(count, -3, 3);
    const size_t padded = (count + 63) / 64 * 64;
    Array<uint16_t> out(padded + 1, 0x1234);
    tiles.to_bf16(x.data(), count, out.data());
    for (size_t i = 0; i < padded; i++)
      EXPECT(out[i] == (i < count ? to_bf16(x[i]) : 0), "to_bf16 at %zu of %zu: %04x", i, count, out[i]);
    EXPECT(out[padded] == 0x1234, "to_bf16 wrote past %zu", padded);
  }
}

struct Quantised {
  Array<int8_t> values;
  Array<float> scales;
  Array<int32_t> sums;

  Quantised(const Tiles& tiles, const Array<float>& x)
      : values((x.size() + 63) / 64 * 64 + 1, 99), scales(values.size() / 32 + 1, kUntouched),
        sums(values.size() / 32 + 1, 4321) {
    tiles.to_int8(x.data(), x.size(), values.data(), scales.data(), sums.data());
  }
};

void expect_quantised(const Array<float>& x, const Quantised& q) {
  const size_t groups = q.scales.size() - 1;
  for (size_t g = 0; g < groups; g++) {
    float largest = 0;
    for (size_t i = g * 32; i < g * 32 + 32 && i < x.size(); i++) largest = std::fmax(largest, std::fabs(x[i]));
    EXPECT(same(q.scales[g], largest / 127.0f), "to_int8: scale %g, not %g", q.scales[g], largest / 127.0f);
    int32_t sum = 0;
    for (size_t i = g * 32; i < g * 32 + 32; i++) {
      const float right = i < x.size() && q.scales[g] > 0 ? std::nearbyint(x[i] / q.scales[g]) : 0;
      EXPECT(q.values[i] == std::fmax(-127, std::fmin(127, right)), "to_int8(%g): %d, not %g",
             i < x.size() ? x[i] : 0, q.values[i], right);
      sum += q.values[i];
    }
    EXPECT(q.sums[g] == sum, "to_int8: sum %d, not %d", q.sums[g], sum);
  }
  EXPECT(q.values[groups * 32] == 99 && q.scales[groups] == kUntouched && q.sums[groups] == 4321,
         "to_int8 wrote past %zu columns", x.size());
}

void test_to_int8(const Tiles& tiles) {
  for (size_t count : kCounts) {
    const Array<float> x = numbers(count, -3, 3);
    expect_quantised(x, Quantised(tiles, x));
  }
  Array<float> odd(64 * 3, 0.0f);
  odd[3] = 2e-43f, odd[5] = -2e-43f;  // the scale is subnormal, and the quotient 143
  odd[40] = 1e-45f;                   // the scale is 0
  odd[70] = 3e38f, odd[71] = -1.5e38f;
  for (size_t i = 96; i < 128; i++) odd[i] = static_cast<float>(i) - 95.5f;  // ties
  odd[127] = 127.0f;
  expect_quantised(odd, Quantised(tiles, odd));
  for (float bad : {kNan, kInf, -kInf, -kNan}) {
    for (size_t at : {size_t{0}, size_t{17}, size_t{31}}) {
      Array<float> x(64, 1.0f);
      x[at] = bad;
      const Quantised q(tiles, x);
      EXPECT(std::isnan(q.scales[0]) && q.sums[0] == 0 && q.scales[1] == 1.0f / 127.0f, "to_int8 of %g: scale %g", bad,
             q.scales[0]);
    }
  }
}

void test_sum_squares(const Tiles& tiles, const Tiles& other) {
  for (size_t count : kCounts) {
    const Array<float> x = numbers(count, -3, 3);
    double right = 0;
    for (float v : x) right += static_cast<double>(v) * v;
    const float got = tiles.sum_squares(x.data(), count), there = other.sum_squares(x.data(), count);
    EXPECT(std::fabs(got - right) <= 1e-6 * right, "sum_squares of %zu: %.9g, not %.9g", count, got, right);
    EXPECT(same(got, there), "sum_squares of %zu differs between instruction sets: %.9g, %.9g", count, got, there);
  }
}

void test_scale_by(const Tiles& tiles) {
  for (size_t count : kCounts) {
    const Array<float> x = numbers(count, -3, 3), weight = numbers(count + 3, -1, 1);
    Array<uint16_t> narrow;
    for (size_t i = 0; i < count; i++) narrow.push_back(to_bf16(weight[i]));
    for (int kind = 0; kind < 3; kind++) {
      const void* w = kind == 0 ? nullptr : kind == 1 ? static_cast<const void*>(weight.data()) : narrow.data();
      Array<float> out = x;
      out.push_back(kUntouched);
      tiles.scale_by(out.data(), count, 1.7f, w, kind == 2, 1.0f, out.data());  // in place
      for (size_t i = 0; i < count; i++) {
        const float scaled = x[i] * 1.7f;
        const float right = kind == 0   ? scaled
                            : kind == 1 ? scaled * (weight[i] + 1.0f)
                                        : scaled * (from_bf16(narrow[i]) + 1.0f);
        EXPECT(same(out[i], right), "scale_by at %zu of %zu: %.9g, not %.9g", i, count, out[i], right);
      }
      EXPECT(out[count] == kUntouched, "scale_by wrote past %zu", count);
    }
  }
}

void expect_argmax(const Tiles& tiles, const Array<float>& x) {
  int64_t right = -1;
  float top = -kInf, best = kUntouched;
  for (size_t i = 0; i < x.size(); i++)
    if (x[i] > top) top = x[i], right = static_cast<int64_t>(i);
  const int64_t got = tiles.argmax(x.data(), x.size(), &best);
  EXPECT(got == right && same(best, top), "argmax of %zu: %lld (%g), not %lld (%g)", x.size(),
         static_cast<long long>(got), best, static_cast<long long>(right), top);
}

void test_argmax(const Tiles& tiles) {
  for (size_t count : kCounts) {
    Random random{count};
    Array<float> x = numbers(count, -3, 3);
    expect_argmax(tiles, x);
    for (size_t i = 0; i < count; i++) x[i] = static_cast<float>(random.below(3));  // many equals
    expect_argmax(tiles, x);
    for (size_t i = 0; i < count; i++)
      if (random.below(2) == 0) x[i] = random.below(2) == 0 ? kNan : -kInf;
    expect_argmax(tiles, x);
    for (float v : {kNan, -kInf, kInf, -0.0f, -1e38f}) expect_argmax(tiles, Array<float>(count, v));
  }
}

}  // namespace

void test_elementwise(const Tiles& tiles, const Tiles& other) {
  test_gated("gelu", tiles.gelu_times, other.gelu_times, gelu,
             [](double x) { return 1.6 * std::fabs(x + 0.045 * x * x * x); });
  test_gated("silu", tiles.silu_times, other.silu_times, silu, [](double x) { return std::fabs(x); });
  test_softcap(tiles, other);
  test_conversions(tiles);
  test_to_bf16(tiles);
  test_to_int8(tiles);
  test_sum_squares(tiles, other);
  test_scale_by(tiles);
  test_argmax(tiles);
}
