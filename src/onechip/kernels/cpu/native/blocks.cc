// What JAX gives, checked; and how work is shared out.
#include "blocks.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace onechip {

namespace {

bool is_bf16(const char* name, const ffi::AnyBuffer& buffer) {
  const ffi::DataType dtype = buffer.element_type();
  check(dtype == ffi::DataType::BF16 || dtype == ffi::DataType::F32,
        std::string(name) + " must be bfloat16 or float32; cast it");
  return dtype == ffi::DataType::BF16;
}

size_t blocks(size_t columns) { return (columns + kBlock - 1) / kBlock; }

}  // namespace

void check(bool condition, const std::string& sentence) {
  if (!condition) throw std::invalid_argument(sentence);
}

const Tiles& require_tiles() {
  const Tiles* best = tiles();
  check(best != nullptr, "this processor lacks AVX2, FMA or F16C; use the kernels in plain JAX");
  return *best;
}

Matrix as_matrix(const char* name, const ffi::AnyBuffer& buffer) {
  const auto dimensions = buffer.dimensions();
  check(dimensions.size() > 0 && dimensions.back() > 0, std::string(name) + " must have columns");
  const size_t columns = static_cast<size_t>(dimensions.back());
  return {static_cast<uint8_t*>(buffer.untyped_data()), is_bf16(name, buffer), buffer.element_count() / columns,
          columns};
}

Linear as_linear(const char* name, const ffi::AnyBuffer& data, const WeightAttrs& attrs) {
  const size_t outputs = static_cast<size_t>(attrs.outputs), inputs = static_cast<size_t>(attrs.inputs);
  const size_t halves = attrs.paired ? 2 : 1;
  const Panels panels{static_cast<Weight>(attrs.kind), static_cast<Scale>(attrs.scale),
                      static_cast<const uint8_t*>(data.untyped_data()), blocks(inputs) * kBlock};
  const size_t count = (outputs / halves + kLanes - 1) / kLanes * halves;
  check(data.size_bytes() == count * panels.panel_bytes(),
        std::string(name) + " has " + std::to_string(data.size_bytes()) + " bytes where its shape [" +
            std::to_string(outputs) + ", " + std::to_string(inputs) + "] needs " +
            std::to_string(count * panels.panel_bytes()) + "; pack it again");
  check(reinterpret_cast<uintptr_t>(panels.data) % 64 == 0,
        std::string(name) + " does not begin at a multiple of 64 bytes; lay it out anew");
  return {panels, inputs, outputs, count, attrs.exact};
}

Norm as_norm(const char* name, const ffi::AnyBuffer& weight, const NormAttrs& attrs, size_t columns) {
  const size_t count = weight.element_count();
  check(count == 0 || count == columns, std::string(name) + " has " + std::to_string(count) +
                                            " weights for rows of " + std::to_string(columns) + " values");
  return {attrs.present, count ? weight.untyped_data() : nullptr, count && is_bf16(name, weight), attrs.eps,
          attrs.offset};
}

double product_cost_ns(const Linear& weight, size_t rows) {
  const double bytes = static_cast<double>(weight.count * weight.panels.panel_bytes());
  const double products = static_cast<double>(weight.stride() * weight.panels.columns * rows);
  return std::max(bytes / 12, products / 100);  // 12 GB/s; 1e11 multiply-adds a second
}

double rows_cost_ns(size_t rows, size_t columns) { return static_cast<double>(rows * columns) * 0.7; }

size_t tasks_wanted(size_t rows) {
  const size_t per_thread = rows <= kFewRows ? 32 : 8;
  return static_cast<size_t>(Team::get().size()) * per_thread;
}

size_t panels_per_task(const Linear& weight, size_t rows) {
  constexpr size_t kLeastBytes = 16 << 10, kMostBytes = 512 << 10;  // half of a second-level cache
  constexpr size_t kMostResults = 4096;                             // of all rows, times 16
  const size_t bytes = weight.panels.panel_bytes();
  size_t step = weight.count / tasks_wanted(rows);
  step = std::max(step, kLeastBytes / bytes);
  step = std::min({step, kMostBytes / bytes, kMostResults / rows});
  return step >= 4 ? step / 4 * 4 : std::max<size_t>(step, 1);
}

void ban(float* logits, size_t begin, size_t columns, const int32_t* banned, size_t count) {
  for (size_t n = 0; n < count; ++n) {
    // An id below `begin`, or below 0, wraps round to a huge one.
    const size_t column = static_cast<size_t>(int64_t{banned[n]}) - begin;
    if (column < columns) logits[column] = -std::numeric_limits<float>::infinity();
  }
}

int64_t first_best(const Tiles& tiles, const float* logits, size_t columns, float* best) {
  const int64_t index = tiles.argmax(logits, columns, best);
  // The argmax passes over what is not a number; squares add up to NaN only where there is one.
  return std::isnan(tiles.sum_squares(logits, columns)) ? kNotANumber : index;
}

float* multiply(const Tiles& tiles, Slot slot, const Linear& weight, const Inputs& x, size_t rows) {
  const size_t stride = weight.stride();
  float* out = static_cast<float*>(scratch(slot, rows * stride * sizeof(float)));
  each_panels(weight, rows, [&](size_t panel, size_t count) {
    tiles.product(weight.from(panel), count, x.rows(), 0, rows, out + panel * kLanes, stride);
  });
  return out;
}

}  // namespace onechip
