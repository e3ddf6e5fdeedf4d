// The MLP: gate, up, activation and what down needs of it in one pass over the weight; then down.
#include <cstring>

#include "blocks.h"

namespace onechip {

namespace {

using Times = void (*)(const float* gate, const float* up, size_t count, float* out);

struct Mlp {
  const Tiles& tiles;
  const Linear& gate_up;
  Times times;
  bool bf16;
};

// Activated columns 64 * block.. of all rows, from as many pairs of panels, into the rows that meet down.
void activate_block(const Mlp& mlp, const Inputs& x, size_t rows, size_t block, const Inputs& inner) {
  constexpr size_t kPairs = kBlock / kLanes;
  const size_t panel = block * 2 * kPairs, pairs = std::min(2 * kPairs, mlp.gate_up.count - panel) / 2;
  const size_t stride = 2 * pairs * kLanes, columns = pairs * kLanes;
  float* product = static_cast<float*>(scratch(kTask, rows * stride * sizeof(float)));
  mlp.tiles.product(mlp.gate_up.from(panel), 2 * pairs, x.rows(), 0, rows, product, stride);
  alignas(64) float halves[2 * kBlock], activated[kBlock];
  float *gate = halves, *up = halves + columns;
  for (size_t row = 0; row < rows; ++row) {
    const float* pair = product + row * stride;
    for (size_t at = 0; at < columns; at += kLanes, pair += 2 * kLanes) {
      std::memcpy(gate + at, pair, kLanes * sizeof(float));
      std::memcpy(up + at, pair + kLanes, kLanes * sizeof(float));
    }
    round_to(mlp.tiles, mlp.bf16, halves, 2 * columns);
    mlp.times(gate, up, columns, activated);
    inner.put(mlp.tiles, row, block * kBlock, activated, columns);
  }
}

ffi::Error mlp(ffi::AnyBuffer hidden_buffer, ffi::AnyBuffer gate_up_data, ffi::AnyBuffer down_data,
               ffi::AnyBuffer norm_weight, ffi::AnyBuffer post_norm_weight, ffi::Result<ffi::AnyBuffer> result,
               WeightAttrs gate_up_attrs, WeightAttrs down_attrs, NormAttrs norm_attrs, NormAttrs post_norm_attrs,
               bool silu) {
  return answer([&] {
    const Tiles& tiles = require_tiles();
    const Matrix hidden = as_matrix("hidden", hidden_buffer), out = as_matrix("the result", *result);
    const Linear gate_up = as_linear("gate_up", gate_up_data, gate_up_attrs);
    const Linear down = as_linear("down", down_data, down_attrs);
    const Norm norm = as_norm("the norm", norm_weight, norm_attrs, hidden.columns);
    const Norm post_norm = as_norm("the post norm", post_norm_weight, post_norm_attrs, hidden.columns);
    check(gate_up_attrs.paired && gate_up.outputs == 2 * down.inputs,
          "gate_up must have its halves take turns, and twice as many outputs as down has inputs");
    check(!down_attrs.paired && down.outputs == hidden.columns, "down must have as many outputs as hidden has columns");
    const Mlp parts{tiles, gate_up, silu ? tiles.silu_times : tiles.gelu_times, hidden.bf16};
    for (size_t first = 0; first < hidden.rows; first += kPass) {
      const size_t rows = std::min(kPass, hidden.rows - first);
      const Inputs inputs = prepare(tiles, hidden, first, rows, norm, gate_up);
      const Inputs inner(kInner, meets(down, hidden.bf16), rows, down.inputs);
      share(product_cost_ns(gate_up, rows), down.panels.columns / kBlock,
            [&](size_t block) { activate_block(parts, inputs, rows, block, inner); });
      float* product = multiply(tiles, kProduct, down, inner, rows);
      finish(tiles, product, down.stride(), first, rows, {post_norm, hidden, out, nullptr});
    }
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipMlp, mlp,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()  // hidden
                                  .Arg<ffi::AnyBuffer>()  // gate_up
                                  .Arg<ffi::AnyBuffer>()  // down
                                  .Arg<ffi::AnyBuffer>()  // norm's weight, empty for 1
                                  .Arg<ffi::AnyBuffer>()  // post_norm's weight, empty for 1
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<WeightAttrs>("gate_up")
                                  .Attr<WeightAttrs>("down")
                                  .Attr<NormAttrs>("norm")
                                  .Attr<NormAttrs>("post_norm")
                                  .Attr<bool>("silu"));

}  // namespace onechip
