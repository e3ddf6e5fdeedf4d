// Norms, RoPE, the writing of the cache and attention of any rows, as JAX's FFI calls it (kernels/api.py: AttendRows).
#include "attention.h"

#include <cstring>

#include "attention_call.h"

namespace onechip {
namespace {

const AttentionKernels& kernels_for(const Tiles& tiles, bool bf16) {
  if (std::strcmp(tiles.name, "avx2") == 0) return bf16 ? kAvx2AttentionBf16 : kAvx2AttentionF32;
  if (!bf16) return kAvx512AttentionF32;
  return std::strcmp(tiles.name, "avx512_vnni") == 0 ? kAvx512AttentionBf16 : kAvx512Bf16AttentionBf16;
}

// The active rows as runs. A row whose slot or position the cache does not have is as an inactive one.
std::vector<Run> runs_of(const Call& call, const int32_t* slots, const int32_t* positions, const bool* active) {
  std::vector<Run> runs;
  bool open = false;  // the row before belongs to the last run
  for (size_t row = 0; row < call.rows; ++row) {
    const bool there = slots[row] >= 0 && static_cast<size_t>(slots[row]) < call.slots && positions[row] >= 0 &&
                       (call.window || static_cast<size_t>(positions[row]) < call.length);
    if (!active[row] || !there) {
      open = false;
      std::memset(call.out + row * call.heads * call.row_bytes(), 0, call.heads * call.row_bytes());
      continue;
    }
    const size_t slot = static_cast<size_t>(slots[row]), position = static_cast<size_t>(positions[row]);
    if (open && runs.back().slot == slot && runs.back().position + runs.back().rows == position) {
      ++runs.back().rows;
    } else {
      runs.push_back({row, 1, slot, position, false});
      open = true;
    }
  }
  for (Run& run : runs) run.fresh = call.owns_kv && call.window && run.rows > 1;
  return runs;
}

void check_shapes(const Call& call, const ffi::AnyBuffer& k, const ffi::AnyBuffer& v, size_t turns) {
  const size_t own = call.owns_kv ? call.kv_heads * (call.k_eq_v ? 1 : 2) : 0;
  check(call.kv_heads > 0 && call.heads % call.kv_heads == 0, "heads must be a multiple of kv_heads");
  check(call.width % 16 == 0 && call.width > 0 && call.width <= kMostWidth,
        "heads must be a multiple of 16 wide, at most " + std::to_string(kMostWidth));
  check(call.columns == (call.heads + own) * call.width, "qkv must be [rows, (heads + keys + values) * width]");
  check(turns == call.rows * call.width / 2, "cos and sin must be [rows, width / 2]");
  check(v.element_count() == k.element_count(), "k and v must have one shape");
  check(!call.window || call.length == call.window, "a ring must be as long as its window");
  const auto stored = call.bf16 ? ffi::DataType::U16 : ffi::DataType::F32;
  check(k.element_type() == stored && v.element_type() == stored,
        "caches must be uint16 for bfloat16 activations, float32 for float32 ones");
}

ffi::Error attend(ffi::AnyBuffer qkv, ffi::Buffer<ffi::F32> cos, ffi::Buffer<ffi::F32> sin, ffi::AnyBuffer q_weight,
                  ffi::AnyBuffer k_weight, ffi::AnyBuffer k, ffi::AnyBuffer v, ffi::Buffer<ffi::S32> slots,
                  ffi::Buffer<ffi::S32> positions, ffi::Buffer<ffi::PRED> active, ffi::Result<ffi::AnyBuffer> out,
                  ffi::RemainingRets caches, HeadAttrs head, NormAttrs q_norm, NormAttrs k_norm, NormAttrs v_norm) {
  return answer([&] {
    const Matrix x = as_matrix("qkv", qkv);
    const auto shape = k.dimensions();
    check(shape.size() == 4 && shape[1] == head.kv_heads, "caches must be [slots, kv_heads, length, width]");
    const size_t width = static_cast<size_t>(shape[3]);
    const Tiles& tiles = require_tiles();
    const Norm no_norm_weight{v_norm.present, nullptr, false, v_norm.eps, v_norm.offset};
    Call call{tiles,
              kernels_for(tiles, x.bf16),
              x.bf16 ? turn_bf16 : turn_f32,
              static_cast<size_t>(head.heads),
              static_cast<size_t>(head.kv_heads),
              width,
              static_cast<size_t>(head.window),
              head.owns_kv,
              head.k_eq_v,
              x.bf16,
              head.q_scale,
              as_norm("q_norm", q_weight, q_norm, width),
              as_norm("k_norm", k_weight, k_norm, width),
              no_norm_weight,
              x.rows,
              static_cast<size_t>(shape[0]),
              static_cast<size_t>(shape[2]),
              x.data,
              x.columns,
              cos.typed_data(),
              sin.typed_data(),
              static_cast<uint8_t*>(k.untyped_data()),
              static_cast<uint8_t*>(v.untyped_data()),
              static_cast<uint8_t*>(out->untyped_data()),
              {},
              nullptr,
              nullptr,
              nullptr};
    check_shapes(call, k, v, std::min(cos.element_count(), sin.element_count()));
    // Results that take over the caches' memory, unless the layer only reads them.
    for (size_t i = 0; i < caches.size(); ++i)
      check((*caches.get<ffi::AnyBuffer>(i))->untyped_data() == (i ? v : k).untyped_data(),
            "the caches must be changed in place");
    call.runs = runs_of(call, slots.typed_data(), positions.typed_data(), active.typed_data());
    call.queries = static_cast<uint8_t*>(scratch(kQueries, call.rows * call.heads * call.query_bytes()));
    const bool any_fresh = std::any_of(call.runs.begin(), call.runs.end(), [](const Run& run) { return run.fresh; });
    if (any_fresh) {
      const size_t bytes = call.rows * call.kv_heads * call.row_bytes();
      call.fresh_k = static_cast<uint8_t*>(scratch(kFresh, 2 * bytes));
      call.fresh_v = call.fresh_k + bytes;
    }
    prepare_rows(call);
    attend_runs(call);
    keep_fresh(call);
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipAttend, attend,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()            // qkv
                                  .Arg<ffi::Buffer<ffi::F32>>()     // cos
                                  .Arg<ffi::Buffer<ffi::F32>>()     // sin
                                  .Arg<ffi::AnyBuffer>()            // q_norm's weight, empty for 1
                                  .Arg<ffi::AnyBuffer>()            // k_norm's weight
                                  .Arg<ffi::AnyBuffer>()            // k
                                  .Arg<ffi::AnyBuffer>()            // v
                                  .Arg<ffi::Buffer<ffi::S32>>()     // slots
                                  .Arg<ffi::Buffer<ffi::S32>>()     // positions
                                  .Arg<ffi::Buffer<ffi::PRED>>()    // active
                                  .Ret<ffi::AnyBuffer>()            // the rows
                                  .RemainingRets()                  // k and v, if the layer owns them
                                  .Attr<HeadAttrs>("head")
                                  .Attr<NormAttrs>("q_norm")
                                  .Attr<NormAttrs>("k_norm")
                                  .Attr<NormAttrs>("v_norm"));

}  // namespace onechip
