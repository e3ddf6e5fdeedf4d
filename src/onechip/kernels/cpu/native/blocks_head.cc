// The head: the best of all logits of each row, without writing them to memory.
#include <cmath>
#include <limits>

#include "blocks.h"

namespace onechip {

namespace {

struct Best {
  float value;
  int32_t index;  // kNothing, kNotANumber, or of the first of the best
};

constexpr int32_t kNothing = -1;  // larger than -inf
constexpr int32_t kNotANumber = -2;

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
    for (size_t n = 0; n < head.bans; ++n) {
      // An id below `begin` wraps round to a huge one.
      const size_t column = static_cast<size_t>(int64_t{head.banned[row * head.bans + n]}) - begin;
      if (column < columns) line[column] = -std::numeric_limits<float>::infinity();
    }
    const int64_t index = head.tiles.argmax(line, columns, &best[row].value);
    // The argmax passes over what is not a number; squares add up to NaN only where there is one.
    const bool numbers = !std::isnan(head.tiles.sum_squares(line, columns));
    const int32_t found = index < 0 ? kNothing : static_cast<int32_t>(begin + static_cast<size_t>(index));
    best[row].index = numbers ? found : kNotANumber;
  }
}

// bests [tasks, rows] -> the first of the best of a row; -1 if there is none, or one is not a number.
int32_t merge(const Best* bests, size_t tasks, size_t rows, size_t row) {
  Best best{0, kNothing};
  for (size_t task = 0; task < tasks; ++task) {
    const Best& other = bests[task * rows + row];
    if (other.index == kNotANumber) return -1;
    if (other.index >= 0 && (best.index < 0 || other.value > best.value)) best = other;
  }
  return best.index;  // kNothing is -1
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
    const size_t mattering = live_rows(live, hidden.rows);
    for (size_t first = 0; first < mattering; first += kPass) {
      const size_t rows = std::min(kPass, mattering - first);
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
    }
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
