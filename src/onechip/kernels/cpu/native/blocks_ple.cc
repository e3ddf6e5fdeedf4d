// Per-layer embeddings: gate, activation, times the embedding, out, norm, residual, scalar.
#include "blocks.h"

namespace onechip {

namespace {

// gelu(gate) * ple of all rows of a pass, ready for the product with `out`. The products are overwritten.
Inputs activate(const Tiles& tiles, float* gates, size_t stride, const Matrix& ple, size_t first, size_t rows,
                const Linear& out) {
  const Inputs inner(kInner, meets(out, ple.bf16), rows, ple.columns);
  share(rows_cost_ns(rows, ple.columns), rows, [&](size_t row) {
    float* gate = gates + row * stride;
    float* wide = static_cast<float*>(scratch(kRow, ple.columns * sizeof(float)));
    round_to(tiles, ple.bf16, gate, ple.columns);
    tiles.gelu_times(gate, load(tiles, ple.bf16, ple.row(first + row), ple.columns, wide), ple.columns, gate);
    inner.put(tiles, row, 0, gate, ple.columns);
  });
  return inner;
}

// The one value of a buffer, rounded to bf16 if the activations are; false if it is empty.
bool as_scalar(const Tiles& tiles, const ffi::AnyBuffer& buffer, bool bf16, float* value) {
  if (buffer.element_count() == 0) return false;
  const Matrix scalar = as_matrix("scalar", buffer);
  check(scalar.rows * scalar.columns == 1, "scalar must be one value");
  *value = *load(tiles, scalar.bf16, scalar.data, 1, value);
  round_to(tiles, bf16, value, 1);
  return true;
}

ffi::Error add_ple(ffi::AnyBuffer hidden_buffer, ffi::AnyBuffer ple_buffer, ffi::AnyBuffer gate_data,
                   ffi::AnyBuffer out_data, ffi::AnyBuffer norm_weight, ffi::AnyBuffer scalar_buffer,
                   Live live, ffi::Result<ffi::AnyBuffer> result, WeightAttrs gate_attrs, WeightAttrs out_attrs,
                   NormAttrs norm_attrs) {
  return answer([&] {
    const Tiles& tiles = require_tiles();
    const Matrix hidden = as_matrix("hidden", hidden_buffer), ple = as_matrix("ple", ple_buffer);
    const Matrix into = as_matrix("the result", *result);
    const Linear gate = as_linear("gate", gate_data, gate_attrs), out = as_linear("out", out_data, out_attrs);
    const Norm norm = as_norm("the post norm", norm_weight, norm_attrs, hidden.columns);
    check(!gate_attrs.paired && !out_attrs.paired, "add_ple cannot take a weight whose halves take turns");
    check(ple.rows == hidden.rows && ple.bf16 == hidden.bf16 && ple.columns == gate.outputs,
          "ple must have hidden's rows and dtype, and a column for each output of gate");
    check(out.inputs == ple.columns && out.outputs == hidden.columns, "out must lead from ple's width to hidden's");
    float value = 1;
    const float* scalar = as_scalar(tiles, scalar_buffer, hidden.bf16, &value) ? &value : nullptr;
    each_pass(live, hidden.rows, [&](size_t first, size_t rows) {
      const Inputs inputs = prepare(tiles, hidden, first, rows, Norm{}, gate);
      float* gates = multiply(tiles, kProduct, gate, inputs, rows);
      const Inputs inner = activate(tiles, gates, gate.stride(), ple, first, rows, out);
      float* product = multiply(tiles, kProduct, out, inner, rows);
      finish(tiles, product, out.stride(), first, rows, {norm, hidden, into, scalar});
    });
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipAddPle, add_ple,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()  // hidden
                                  .Arg<ffi::AnyBuffer>()  // ple
                                  .Arg<ffi::AnyBuffer>()  // gate
                                  .Arg<ffi::AnyBuffer>()  // out
                                  .Arg<ffi::AnyBuffer>()  // post_norm's weight, empty for 1
                                  .Arg<ffi::AnyBuffer>()  // scalar, empty for 1
                                  .Arg<Live>()  // how many rows matter
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<WeightAttrs>("gate")
                                  .Attr<WeightAttrs>("out")
                                  .Attr<NormAttrs>("post_norm"));

}  // namespace onechip
