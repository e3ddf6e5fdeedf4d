// Functions on rows of numbers, over vectors of 16 floats. No guard: each instruction set's file includes it once,
// inside its anonymous namespace, after it has defined
//
//   F, I, Mask           16 floats, 16 int32, 16 truths
//   load, load_some      16 floats, or the first n < 16 and zeros; store, store_some
//   load_bf16, load_bf16_some, store_bf16, store_bf16_some
//   set, set_int, add, subtract, multiply, divide, fma (a * b + c), fnma (c - a * b), maximum, minimum, nearest
//   bits, floats, to_int, to_float, add_int, shift_left<n>, and_int, max_unsigned
//   less, select (mask ? a : b), lanes (store 16 int32), store_int8
//
// The same operations in the same order on every instruction set, so results agree to the bit.

[[gnu::always_inline]] inline F absolute(F x) { return floats(and_int(bits(x), set_int(0x7fffffff))); }

// Lane i with lane i + 8, then + 4, + 2, + 1.
[[gnu::always_inline]] inline float tree_sum(F x) {
  alignas(64) float lane[16];
  store(lane, x);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}

// 2^n, n a whole number in -126..127.
[[gnu::always_inline]] inline F power_of_two(I n) { return floats(shift_left<23>(add_int(n, set_int(127)))); }

// e^x, relative error below 3e-7; the polynomial is Cephes' expf. Infinite above 88.73, 0 below -104.
[[gnu::always_inline]] inline F exponential(F x) {
  x = minimum(set(89.0f), maximum(set(-104.0f), x));  // a NaN passes: it is the second operand of both
  F n = nearest(multiply(x, set(1.44269504088896341f)));
  F r = fnma(n, set(0.693359375f), x);
  r = fnma(n, set(-2.12194440e-4f), r);
  F p = set(1.9875691500e-4f);
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = add(fma(p, multiply(r, r), r), set(1.0f));
  // In two steps: 2^n itself leaves the range of floats where e^x is subnormal or infinite.
  F half = nearest(multiply(n, set(0.5f)));
  return multiply(multiply(p, power_of_two(to_int(half))), power_of_two(to_int(subtract(n, half))));
}

// tanh x, relative error below 3e-7; the polynomial near 0 is Cephes' tanhf.
[[gnu::always_inline]] inline F hyperbolic_tangent(F x) {
  F size = absolute(x), square = multiply(x, x);
  F p = set(-5.70498872745e-3f);
  p = fma(p, square, set(2.06390887954e-2f));
  p = fma(p, square, set(-5.37397155531e-2f));
  p = fma(p, square, set(1.33314422036e-1f));
  p = fma(p, square, set(-3.33332819422e-1f));
  p = fma(multiply(p, square), x, x);
  F far = subtract(set(1.0f), divide(set(2.0f), add(exponential(add(size, size)), set(1.0f))));
  I sign = and_int(bits(x), set_int(INT32_MIN));
  return select(less(size, set(0.625f)), p, floats(or_int(bits(far), sign)));
}

// x * sigmoid(y): gelu_tanh is x * sigmoid(2 u), which loses no digits where tanh(u) is near -1.
[[gnu::always_inline]] inline F times_sigmoid(F x, F minus_y) {
  return divide(x, add(set(1.0f), exponential(minus_y)));
}

[[gnu::always_inline]] inline F silu(F x) { return times_sigmoid(x, subtract(set(0.0f), x)); }

[[gnu::always_inline]] inline F gelu_tanh(F x) {
  // -2 u = -2 sqrt(2 / pi) (x + 0.044715 x^3)
  F cubic = fma(multiply(x, x), set(0.044715f), set(1.0f));
  return times_sigmoid(x, multiply(multiply(x, set(-1.5957691216057308f)), cubic));
}

// out[i] = f(a[i], b[i]); out may be a or b.
template <class Function>
[[gnu::always_inline]] inline void map_pairs(const float* a, const float* b, size_t count, float* out, Function f) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) store(out + i, f(load(a + i), load(b + i)));
  if (i < count) store_some(out + i, count - i, f(load_some(a + i, count - i), load_some(b + i, count - i)));
}

// Named, not lambdas: gcc 12 compiles the function pointer of a lambda without captures for the plain processor.
struct GeluTimes {
  [[gnu::always_inline]] F operator()(F gate, F up) const { return multiply(gelu_tanh(gate), up); }
};

struct SiluTimes {
  [[gnu::always_inline]] F operator()(F gate, F up) const { return multiply(silu(gate), up); }
};

void gelu_times(const float* gate, const float* up, size_t count, float* out) {
  map_pairs(gate, up, count, out, GeluTimes{});
}

void silu_times(const float* gate, const float* up, size_t count, float* out) {
  map_pairs(gate, up, count, out, SiluTimes{});
}

void softcap(float* x, size_t count, float cap) {
  F c = set(cap);
  map_pairs(x, x, count, x, [c](F a, F) __attribute__((always_inline)) {
    return multiply(c, hyperbolic_tangent(divide(a, c)));
  });
}

void widen(const uint16_t* bf16, size_t count, float* out) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) store(out + i, load_bf16(bf16 + i));
  if (i < count) store_some(out + i, count - i, load_bf16_some(bf16 + i, count - i));
}

void narrow(const float* x, size_t count, uint16_t* out) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) store_bf16(out + i, load(x + i));
  if (i < count) store_bf16_some(out + i, count - i, load_some(x + i, count - i));
}

// 64 partial sums, one for each index modulo 64.
float sum_squares(const float* x, size_t count) {
  F part[4] = {set(0.0f), set(0.0f), set(0.0f), set(0.0f)};
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    for (int k = 0; k < 4; k++) {
      F v = load(x + i + 16 * k);
      part[k] = fma(v, v, part[k]);
    }
  }
  for (int k = 0; k < 4 && i < count; k++, i += 16) {
    F v = count - i >= 16 ? load(x + i) : load_some(x + i, count - i);
    part[k] = fma(v, v, part[k]);
  }
  return tree_sum(add(add(part[0], part[1]), add(part[2], part[3])));
}

void scale_by(const float* x, size_t count, float factor, const void* weight, bool weight_is_bf16, float offset,
              float* out) {
  F f = set(factor), o = set(offset);
  if (weight == nullptr) {
    map_pairs(x, x, count, out, [f](F a, F) __attribute__((always_inline)) { return multiply(a, f); });
  } else if (!weight_is_bf16) {
    map_pairs(x, static_cast<const float*>(weight), count, out,
              [f, o](F a, F w) __attribute__((always_inline)) { return multiply(multiply(a, f), add(w, o)); });
  } else {
    const uint16_t* w = static_cast<const uint16_t*>(weight);
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
      store(out + i, multiply(multiply(load(x + i), f), add(load_bf16(w + i), o)));
    if (size_t rest = count - i)
      store_some(out + i, rest, multiply(multiply(load_some(x + i, rest), f), add(load_bf16_some(w + i, rest), o)));
  }
}

int64_t argmax(const float* x, size_t count, float* best) {
  const F least = set(-__builtin_inff());
  F top = least;
  I where = set_int(-1);
  auto look = [&](F v, size_t at) __attribute__((always_inline)) {
    Mask better = less(top, v);  // never true of a NaN
    top = select(better, v, top);
    where = select(better, set_int(static_cast<int32_t>(at)), where);
  };
  size_t i = 0;
  for (; i + 16 <= count; i += 16) look(load(x + i), i);
  if (size_t rest = count - i) {
    alignas(64) float last[16];
    store(last, least);
    memcpy(last, x + i, rest * sizeof(float));
    look(load(last), i);
  }
  alignas(64) float value[16];
  alignas(64) int32_t start[16];
  store(value, top);
  lanes(start, where);
  int64_t index = -1;
  *best = -__builtin_inff();
  for (int lane = 0; lane < 16; lane++) {
    if (start[lane] < 0) continue;
    int64_t at = start[lane] + lane;
    if (value[lane] > *best || (value[lane] == *best && at < index)) {
      *best = value[lane];
      index = at;
    }
  }
  return index;
}

void to_bf16(const float* x, size_t columns, uint16_t* values) {
  narrow(x, columns, values);
  size_t padded = (columns + kBlock - 1) / kBlock * kBlock;
  memset(values + columns, 0, (padded - columns) * sizeof(uint16_t));
}

// 32 numbers. A group with an infinity or a NaN gets the scale NaN and zeros, so that what is made of it is NaN.
[[gnu::always_inline]] inline void group_to_int8(F a, F b, int8_t* values, float* scale, int32_t* sum) {
  const I positive = set_int(0x7fffffff);
  alignas(64) int32_t lane[16];
  // As whole numbers, sizes of floats sort as floats do, and NaN above all.
  lanes(lane, max_unsigned(and_int(bits(a), positive), and_int(bits(b), positive)));
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
  float largest;
  memcpy(&largest, lane, sizeof largest);
  const bool finite = lane[0] < 0x7f800000;
  *scale = finite ? largest / 127.0f : __builtin_nanf("");
  if (!finite || *scale == 0.0f) {
    memset(values, 0, kGroup);
    *sum = 0;
    return;
  }
  // Beyond 127 only where the scale is subnormal, and so has few digits.
  const F most = set(127.0f), least = set(-127.0f), s = set(*scale);
  I p = to_int(nearest(minimum(most, maximum(least, divide(a, s)))));
  I q = to_int(nearest(minimum(most, maximum(least, divide(b, s)))));
  store_int8(values, p);
  store_int8(values + 16, q);
  lanes(lane, add_int(p, q));
  int32_t total = 0;
  for (int i = 0; i < 16; i++) total += lane[i];
  *sum = total;
}

void to_int8(const float* x, size_t columns, int8_t* values, float* scales, int32_t* sums) {
  const size_t whole = columns / kGroup * kGroup;
  const size_t padded = (columns + kBlock - 1) / kBlock * kBlock;
  size_t i = 0;
  for (; i < whole; i += kGroup)
    group_to_int8(load(x + i), load(x + i + 16), values + i, scales + i / kGroup, sums + i / kGroup);
  for (; i < padded; i += kGroup) {
    alignas(64) float rest[kGroup] = {};
    if (i < columns) memcpy(rest, x + i, (columns - i) * sizeof(float));
    group_to_int8(load(rest), load(rest + 16), values + i, scales + i / kGroup, sums + i / kGroup);
  }
}
