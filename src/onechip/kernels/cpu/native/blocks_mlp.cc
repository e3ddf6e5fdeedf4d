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

constexpr size_t kMostBlocks = 4;

// Activated columns of some blocks, all rows, from as many pairs of panels, into the rows that meet down.
void activate_blocks(const Mlp& mlp, const Inputs& x, size_t rows, size_t block, size_t count, const Inputs& inner) {
  constexpr size_t kPairs = kBlock / kLanes;
  const size_t panel = block * 2 * kPairs, pairs = std::min(count * 2 * kPairs, mlp.gate_up.count - panel) / 2;
  const size_t stride = 2 * pairs * kLanes, columns = pairs * kLanes;
  float* product = static_cast<float*>(scratch(kTask, rows * stride * sizeof(float)));
  mlp.tiles.product(mlp.gate_up.from(panel), 2 * pairs, x.rows(), 0, rows, product, stride);
  alignas(64) float halves[2 * kMostBlocks * kBlock], activated[kMostBlocks * kBlock];
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

Inputs activate(const Mlp& mlp, const Inputs& x, size_t rows, const Linear& down) {
  const Inputs inner(kInner, meets(down, mlp.bf16), rows, down.inputs);
  const size_t blocks = down.panels.columns / kBlock;
  const size_t step = std::clamp<size_t>(blocks / tasks_wanted(rows), 1, kMostBlocks);
  share(product_cost_ns(mlp.gate_up, rows), (blocks + step - 1) / step, [&](size_t task) {
    activate_blocks(mlp, x, rows, task * step, std::min(step, blocks - task * step), inner);
  });
  return inner;
}

ffi::Error mlp(ffi::AnyBuffer hidden_buffer, ffi::AnyBuffer gate_up_data, ffi::AnyBuffer down_data,
               ffi::AnyBuffer norm_weight, ffi::AnyBuffer post_norm_weight, Live live,
               ffi::Result<ffi::AnyBuffer> result, WeightAttrs gate_up_attrs, WeightAttrs down_attrs,
               NormAttrs norm_attrs, NormAttrs post_norm_attrs, bool silu) {
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
    each_pass(live, hidden.rows, [&](size_t first, size_t rows) {
      const Inputs inputs = prepare(tiles, hidden, first, rows, norm, gate_up);
      const Inputs inner = activate(parts, inputs, rows, down);
      float* product = multiply(tiles, kProduct, down, inner, rows);
      finish(tiles, product, down.stride(), first, rows, {post_norm, hidden, out, nullptr});
    });
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
                                  .Arg<Live>()  // how many rows matter
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<WeightAttrs>("gate_up")
                                  .Attr<WeightAttrs>("down")
                                  .Attr<NormAttrs>("norm")
                                  .Attr<NormAttrs>("post_norm")
                                  .Attr<bool>("silu"));

}  // namespace onechip
