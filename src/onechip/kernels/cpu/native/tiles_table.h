// The table of an instruction set's functions. No guard; included by each file inside its anonymous namespace, after
// all that stands in the table.

// Products: of activations in int8, and in bf16.
template <auto Int8Product, auto Bf16Product>
void product(const Panels& weight, size_t count, const Rows& x, size_t first, size_t rows, float* out,
             size_t out_stride) {
  auto run = x.kind == Activation::kInt8   ? Int8Product
             : x.kind == Activation::kBf16 ? Bf16Product
                                           : float_product<false>;
  run(weight, count, x, first, rows, out, out_stride);
}

template <auto Int8Product, auto Bf16Product>
constexpr Tiles table(const char* name) {
  return {
      name,        product<Int8Product, Bf16Product>, to_bf16,    to_int8,    widen,   narrow,
      sum_squares, scale_by,                          gelu_times, silu_times, softcap, argmax,
  };
}
