// The head: the best of all logits of each row, without writing them to memory.
#include "blocks.h"

namespace onechip {

namespace {

struct Best {
  float value;
  int64_t index;  // kNoIndex, kNotANumber, or of the first of the best
};

struct Head {
  const Tiles& tiles;
  const Linear& weight;
  const int32_t* banned;  // [rows, bans], of this pass
  size_t bans;
};

// The best among the outputs of panels panel..panel + count, of each row.
void best_of(const Head& head, const Inputs& x, size_t rows, size_t panel, size_t count, Best* best) {
  const size_t begin = panel * kLanes, stride = count * kLanes;
  const size_t columns = std::min(stride, head.weight.outputs - begin);
  float* logits = static_cast<float*>(scratch(kTask, rows * stride * sizeof(float)));
  head.tiles.product(head.weight.from(panel), count, x.rows(), 0, rows, logits, stride);
  for (size_t row = 0; row < rows; ++row) {
    float* line = logits + row * stride;
    ban(line, begin, columns, head.banned + row * head.bans, head.bans);
    const int64_t index = first_best(head.tiles, line, columns, &best[row].value);
    best[row].index = index < 0 ? index : index + static_cast<int64_t>(begin);
  }
}

// bests [tasks, rows] -> the first of the best of a row; -1 if there is none, or one is not a number.
int32_t merge(const Best* bests, size_t tasks, size_t rows, size_t row) {
  Best best{0, kNoIndex};
  for (size_t task = 0; task < tasks; ++task) {
    const Best& other = bests[task * rows + row];
    if (other.index == kNotANumber) return -1;
    if (other.index >= 0 && (best.index < 0 || other.value > best.value)) best = other;
  }
  return static_cast<int32_t>(best.index);  // kNoIndex is -1
}

ffi::Error greedy(ffi::AnyBuffer hidden_buffer, ffi::AnyBuffer data, ffi::AnyBuffer norm_weight,
                  ffi::Buffer<ffi::S32> banned, Live live, ffi::ResultBuffer<ffi::S32> result, WeightAttrs weight_attrs,
                  NormAttrs norm_attrs) {
  return answer([&] {
    const Tiles& tiles = require_tiles();
    const Matrix hidden = as_matrix("hidden", hidden_buffer);
    const Linear weight = as_linear("the weight", data, weight_attrs);
    const Norm norm = as_norm("the norm", norm_weight, norm_attrs, hidden.columns);
    check(!weight_attrs.paired, "greedy cannot take a weight whose halves take turns");
    check(result->element_count() == hidden.rows && banned.dimensions().size() == 2 &&
              static_cast<size_t>(banned.dimensions()[0]) == hidden.rows,
          "banned must be [rows, n] and the result [rows], with the rows of hidden");
    const size_t bans = static_cast<size_t>(banned.dimensions()[1]);
    each_pass(live, hidden.rows, [&](size_t first, size_t rows) {
      const Inputs inputs = prepare(tiles, hidden, first, rows, norm, weight);
      const Head head{tiles, weight, banned.typed_data() + first * bans, bans};
      const size_t step = panels_per_task(weight, rows), tasks = (weight.count + step - 1) / step;
      Best* bests = static_cast<Best*>(scratch(kBest, tasks * rows * sizeof(Best)));
      each_panels(weight, rows, [&](size_t panel, size_t count) {
        best_of(head, inputs, rows, panel, count, bests + panel / step * rows);
      });
      for (size_t row = 0; row < rows; ++row) {
        result->typed_data()[first + row] = merge(bests, tasks, rows, row);
      }
    });
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipGreedy, greedy,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()        // hidden
                                  .Arg<ffi::AnyBuffer>()        // weight
                                  .Arg<ffi::AnyBuffer>()        // norm's weight, empty for 1
                                  .Arg<ffi::Buffer<ffi::S32>>()  // banned
                                  .Arg<Live>()                  // how many rows matter
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Attr<WeightAttrs>("weight")
                                  .Attr<NormAttrs>("norm"));

}  // namespace onechip
