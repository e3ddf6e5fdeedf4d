// The operations of a decoder as JAX's FFI calls them: rows of activations come in, meet weights, and leave.
//
// A row's result does not depend on the other rows: each value is summed in an order that Tiles fixes by the shape of
// the weight alone, and how work is cut into passes and tasks only says who computes it.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

#include "layout.h"
#include "team.h"
#include "tiles.h"
#include "xla/ffi/api/ffi.h"

namespace onechip {

namespace ffi = xla::ffi;

// What Python says of a weight and of a norm besides their bytes (kernels/api.py: Panels, Norm).
struct WeightAttrs {
  int32_t kind;
  int32_t scale;
  int64_t outputs;
  int64_t inputs;
  bool exact;
  bool paired;
};

struct NormAttrs {
  bool present;
  float eps;
  float offset;
};

// Scratch memory that lives through a whole call, then that of one task, which may run on the thread of the call.
enum Slot : int { kInputs, kInner, kProduct, kBest, kTask, kRow };

// How many rows matter, a scalar: the result of the others is left as it was found.
using Live = ffi::BufferR0<ffi::S32>;

inline size_t live_rows(const Live& live, size_t rows) {
  return std::min(rows, static_cast<size_t>(std::max(live.typed_data()[0], 0)));
}

// Rows at a time: what a call needs beside its result stays small, whatever the number of rows.
constexpr size_t kPass = 256;

// Runs pass(first, rows) over the rows that matter.
template <typename Pass>
void each_pass(const Live& live, size_t rows, const Pass& pass) {
  const size_t mattering = live_rows(live, rows);
  for (size_t first = 0; first < mattering; first += kPass) pass(first, std::min(kPass, mattering - first));
}

// Activations as JAX gives them, rows one behind the other, bf16 or float32.
struct Matrix {
  uint8_t* data;
  bool bf16;
  size_t rows;
  size_t columns;

  uint8_t* row(size_t index) const { return data + index * columns * (bf16 ? 2 : 4); }
};

struct Linear {
  Panels panels;
  size_t inputs;
  size_t outputs;  // without padding
  size_t count;    // of panels
  bool exact;

  Panels from(size_t panel) const {
    return {panels.kind, panels.scale, panels.data + panel * panels.panel_bytes(), panels.columns};
  }
  // Floats of a row of its product.
  size_t stride() const { return count * kLanes; }
};

struct Norm {
  bool present;
  const void* weight;  // null for 1
  bool weight_is_bf16;
  float eps;
  float offset;
};

// Each throws std::invalid_argument with a sentence about `name` if the parts do not fit.
void check(bool condition, const std::string& sentence);
const Tiles& require_tiles();
Matrix as_matrix(const char* name, const ffi::AnyBuffer& buffer);
Linear as_linear(const char* name, const ffi::AnyBuffer& data, const WeightAttrs& attrs);
Norm as_norm(const char* name, const ffi::AnyBuffer& weight, const NormAttrs& attrs, size_t columns);

// While it lives this thread takes subnormal numbers for zeros, as XLA's threads do: a result must not depend on which
// thread computed it.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kSubnormalsAreZeros); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kSubnormalsAreZeros = 0x40;
  unsigned before_;
};

// What a handler's body throws, as the error that XLA raises.
template <typename Body>
ffi::Error answer(Body&& body) {
  const FlushSubnormals flush;
  try {
    body();
    return ffi::Error::Success();
  } catch (const std::invalid_argument& problem) {
    return ffi::Error::InvalidArgument(problem.what());
  }
}

// Rows as a product reads them, in scratch memory of the calling thread, filled by any thread.
class Inputs {
 public:
  Inputs(Slot slot, Activation kind, size_t rows, size_t columns);

  // Puts `count` values at `column`, a multiple of 64; zeros fill up the last block.
  void put(const Tiles& tiles, size_t row, size_t column, const float* x, size_t count) const;

  const Rows& rows() const { return rows_; }

 private:
  Rows rows_;
};

// How activations meet a weight: rounded to int8 with int4 and int8 weights that are not exact, else as they are.
Activation meets(const Linear& weight, bool bf16);

// Rows first..first + rows of x, normed and rounded to x's dtype, ready for a product with `weight`.
Inputs prepare(const Tiles& tiles, const Matrix& x, size_t first, size_t rows, const Norm& norm, const Linear& weight);

// Rounds to bf16 and back if the activations are bf16.
void round_to(const Tiles& tiles, bool bf16, float* x, size_t count);
const float* load(const Tiles& tiles, bool bf16, const void* x, size_t count, float* buffer);
void store(const Tiles& tiles, bool bf16, const float* x, size_t count, void* out);

// What follows a product: out = (residual + norm(product)) * scalar, rounded after each step.
struct Ending {
  const Norm& norm;
  const Matrix& residual;
  const Matrix& out;
  const float* scalar;  // null for 1
};

// Rows first.. of the result from the product's rows 0..rows - 1 (overwritten).
void finish(const Tiles& tiles, float* product, size_t stride, size_t first, size_t rows, const Ending& ending);

// Below this the helpers of the team are not woken: handing over costs more than it saves.
constexpr double kWorthSharing_ns = 8000;

// Runs task(index) for each index below `count` on the team, or right here if it is little work for one thread.
template <typename Task>
void share(double cost_ns, size_t count, const Task& task) {
  if (count == 1 || cost_ns < kWorthSharing_ns) {
    for (size_t index = 0; index < count; ++index) task(index);
    return;
  }
  Team::get().run(count, [&](size_t index, int) {
    const FlushSubnormals flush;
    task(index);
  });
}

// Time of a product on one thread, roughly: reading the weight or arithmetic, whichever is longer.
double product_cost_ns(const Linear& weight, size_t rows);
double rows_cost_ns(size_t rows, size_t columns);

// Up to so many rows a product is bound by reading the weight; above, each task lays the rows out anew for itself, so
// that larger ones pay (as many as fit beside the rows in the second-level cache).
constexpr size_t kFewRows = 4;

// Several tasks for each thread, so that a slow one holds nobody up.
size_t tasks_wanted(size_t rows);
size_t panels_per_task(const Linear& weight, size_t rows);

// Runs task(first panel, count) over all panels of a weight that meets `rows` rows.
template <typename Task>
void each_panels(const Linear& weight, size_t rows, const Task& task) {
  const size_t step = panels_per_task(weight, rows);
  share(product_cost_ns(weight, rows), (weight.count + step - 1) / step, [&](size_t index) {
    task(index * step, std::min(step, weight.count - index * step));
  });
}

// Logits of ids begin..begin + columns become -inf where `banned` names them; other ids ban nothing.
void ban(float* logits, size_t begin, size_t columns, const int32_t* banned, size_t count);

constexpr int64_t kNoIndex = -1;  // is larger than -inf
constexpr int64_t kNotANumber = -2;

// Index of the first of the largest; kNoIndex, or kNotANumber if one of them is not.
int64_t first_best(const Tiles& tiles, const float* logits, size_t columns, float* best);

// The whole product of the first `rows` of x, float32 [rows, weight.stride()], in scratch memory `slot`.
float* multiply(const Tiles& tiles, Slot slot, const Linear& weight, const Inputs& x, size_t rows);

}  // namespace onechip

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(onechip::WeightAttrs, xla::ffi::StructMember<int32_t>("kind"),
                                      xla::ffi::StructMember<int32_t>("scale"),
                                      xla::ffi::StructMember<int64_t>("outputs"),
                                      xla::ffi::StructMember<int64_t>("inputs"),
                                      xla::ffi::StructMember<bool>("exact"), xla::ffi::StructMember<bool>("paired"));
XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(onechip::NormAttrs, xla::ffi::StructMember<bool>("present"),
                                      xla::ffi::StructMember<float>("eps"), xla::ffi::StructMember<float>("offset"));
