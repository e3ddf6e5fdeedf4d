// Products: matmul, and matmul_add with the norm and the residual behind it.
#include "blocks.h"

namespace onechip {

namespace {

// Panels panel..panel + count of the result, for all rows of a pass.
void multiply_into(const Tiles& tiles, const Linear& weight, const Inputs& x, size_t first, size_t rows, size_t panel,
                   size_t count, const Matrix& out) {
  const size_t column = panel * kLanes, stride = count * kLanes;
  if (!out.bf16 && column + stride <= out.columns) {
    float* direct = reinterpret_cast<float*>(out.row(first)) + column;
    tiles.product(weight.from(panel), count, x.rows(), 0, rows, direct, out.columns);
    return;
  }
  float* product = static_cast<float*>(scratch(kTask, rows * stride * sizeof(float)));
  tiles.product(weight.from(panel), count, x.rows(), 0, rows, product, stride);
  const size_t columns = std::min(stride, out.columns - column);
  for (size_t row = 0; row < rows; ++row) {
    store(tiles, out.bf16, product + row * stride, columns, out.row(first + row) + column * (out.bf16 ? 2 : 4));
  }
}

void check_result(const Matrix& x, const Linear& weight, const Matrix& out) {
  check(out.columns == weight.outputs && out.rows == x.rows,
        "the result must have the rows of the activations and the outputs of the weight");
}

ffi::Error matmul(ffi::AnyBuffer x_buffer, ffi::AnyBuffer data, ffi::AnyBuffer norm_weight, Live live,
                  ffi::Result<ffi::AnyBuffer> result, WeightAttrs weight_attrs, NormAttrs norm_attrs) {
  return answer([&] {
    const Tiles& tiles = require_tiles();
    const Matrix x = as_matrix("x", x_buffer), out = as_matrix("the result", *result);
    const Linear weight = as_linear("the weight", data, weight_attrs);
    const Norm norm = as_norm("the norm", norm_weight, norm_attrs, x.columns);
    check(!weight_attrs.paired, "matmul cannot take a weight whose halves take turns; only mlp can");
    check_result(x, weight, out);
    each_pass(live, x.rows, [&](size_t first, size_t rows) {
      const Inputs inputs = prepare(tiles, x, first, rows, norm, weight);
      each_panels(weight, rows, [&](size_t panel, size_t count) {
        multiply_into(tiles, weight, inputs, first, rows, panel, count, out);
      });
    });
  });
}

ffi::Error matmul_add(ffi::AnyBuffer x_buffer, ffi::AnyBuffer data, ffi::AnyBuffer norm_weight,
                      ffi::AnyBuffer residual_buffer, Live live, ffi::Result<ffi::AnyBuffer> result,
                      WeightAttrs weight_attrs, NormAttrs norm_attrs) {
  return answer([&] {
    const Tiles& tiles = require_tiles();
    const Matrix x = as_matrix("x", x_buffer), out = as_matrix("the result", *result);
    const Matrix residual = as_matrix("the residual", residual_buffer);
    const Linear weight = as_linear("the weight", data, weight_attrs);
    const Norm norm = as_norm("the norm", norm_weight, norm_attrs, out.columns);
    check(!weight_attrs.paired, "matmul_add cannot take a weight whose halves take turns; only mlp can");
    check_result(x, weight, out);
    each_pass(live, x.rows, [&](size_t first, size_t rows) {
      const Inputs inputs = prepare(tiles, x, first, rows, Norm{}, weight);
      float* product = multiply(tiles, kProduct, weight, inputs, rows);
      finish(tiles, product, weight.stride(), first, rows, {norm, residual, out, nullptr});
    });
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipMatmul, matmul,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Arg<ffi::AnyBuffer>()  // weight
                                  .Arg<ffi::AnyBuffer>()  // norm's weight, empty for 1
                                  .Arg<Live>()  // how many rows matter
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<WeightAttrs>("weight")
                                  .Attr<NormAttrs>("norm"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipMatmulAdd, matmul_add,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Arg<ffi::AnyBuffer>()  // weight
                                  .Arg<ffi::AnyBuffer>()  // norm's weight, empty for 1
                                  .Arg<ffi::AnyBuffer>()  // residual
                                  .Arg<Live>()  // how many rows matter
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<WeightAttrs>("weight")
                                  .Attr<NormAttrs>("norm"));

}  // namespace onechip
