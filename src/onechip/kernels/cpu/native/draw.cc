// Drawing the next token of each row from its logits, as engine/sampling.py does: temperature, min_p, top_k, top_p.
//
// The filters keep what is at least a threshold, and softcap and temperature keep the order of logits. So thresholds
// are found among the raw logits, and only what stays is capped, divided and exponentiated. One number in [0, 1) of
// (seed, position) then picks a token from what the probabilities add up to, in the order of ids.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "blocks.h"

namespace onechip {

namespace {

constexpr float kDropped = -std::numeric_limits<float>::infinity();

struct Wishes {
  float temperature, top_p, min_p;
  int32_t top_k;
  uint32_t seed;
};

struct Candidate {
  int32_t id;
  float value;   // capped, over the temperature
  double share;  // exp(value - the largest value)
};

// Float bits in the order of the numbers.
uint32_t ordered(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

float unordered(uint32_t key) {
  const uint32_t bits = key >> 31 ? key & 0x7fffffffu : ~key;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The k-th largest of x, 1 <= k <= count: the upper half of its key from a histogram, then the lower half.
float kth_largest(const float* x, size_t count, size_t k, std::vector<uint32_t>& histogram) {
  uint32_t upper = 0;
  for (int half = 0; half < 2; ++half) {
    histogram.assign(1 << 16, 0);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t key = ordered(x[i]);
      if (half == 0) {
        ++histogram[key >> 16];
      } else if (key >> 16 == upper) {
        ++histogram[key & 0xffff];
      }
    }
    uint32_t digit = 0xffff;
    while (histogram[digit] < k) k -= histogram[digit--];
    if (half == 1) return unordered(upper << 16 | digit);
    upper = digit;
  }
  return kDropped;  // not reached
}

// SplitMix64 (Steele, Lea, Flood 2014), twice, of seed and position; 53 bits in [0, 1).
double uniform(uint32_t seed, uint32_t position) {
  uint64_t state = (uint64_t{seed} << 32 | position) + 0x9e3779b97f4a7c15u;
  for (int round = 0; round < 2; ++round) {
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
    state = (state ^ state >> 27) * 0x94d049bb133111ebu;
    state ^= state >> 31;
  }
  return static_cast<double>(state >> 11) * 0x1p-53;
}

struct Cap {
  float cap;  // 0 for none
  float operator()(float logit) const { return cap > 0 ? cap * std::tanh(logit / cap) : logit; }
};

// Drops from `kept` what top_p leaves out: keeps the smallest set of the most likely whose shares reach top_p of all,
// with all that are as likely as the last of them.
void keep_nucleus(std::vector<Candidate>& kept, double total, float top_p) {
  const double target = top_p * total;
  size_t begin = 0, end = kept.size();
  double above = 0;  // shares of those that are likelier than kept[begin..end)
  float threshold = kDropped;
  while (begin < end) {  // quickselect by weight
    const float pivot = kept[begin + (end - begin) / 2].value;
    const auto middle = std::partition(kept.begin() + begin, kept.begin() + end,
                                       [&](const Candidate& c) { return c.value > pivot; });
    double larger = 0, equal = 0;
    for (auto c = kept.begin() + begin; c != middle; ++c) larger += c->share;
    if (above + larger >= target && middle != kept.begin() + begin) {
      end = middle - kept.begin();
      continue;
    }
    const auto rest = std::partition(middle, kept.begin() + end, [&](const Candidate& c) { return c.value == pivot; });
    for (auto c = middle; c != rest; ++c) equal += c->share;
    threshold = pivot;
    if (above + larger + equal >= target) break;
    above += larger + equal;
    begin = rest - kept.begin();
  }
  std::erase_if(kept, [&](const Candidate& c) { return c.value < threshold; });
}

int32_t draw_row(const Tiles& tiles, const float* logits, size_t count, const Wishes& wishes, Cap cap, uint32_t position) {
  float best;
  const int64_t greedy = first_best(tiles, logits, count, &best);
  if (greedy < 0) return -1;
  if (!(wishes.temperature > 0)) return static_cast<int32_t>(greedy);
  thread_local std::vector<uint32_t> histogram;
  thread_local std::vector<Candidate> kept;
  const float temperature = std::max(wishes.temperature, 1e-6f);
  const float highest = cap(best) / temperature;
  const float floor = wishes.min_p > 0 ? highest + std::log(wishes.min_p) : kDropped;
  const bool some = wishes.top_k > 0 && static_cast<size_t>(wishes.top_k) < count;
  const float least = some ? kth_largest(logits, count, static_cast<size_t>(wishes.top_k), histogram) : kDropped;
  kept.clear();
  double total = 0;
  for (size_t id = 0; id < count; ++id) {
    if (logits[id] < least || logits[id] == kDropped) continue;
    const float value = cap(logits[id]) / temperature;
    if (value < floor) continue;
    const double share = std::exp(value - highest);
    kept.push_back({static_cast<int32_t>(id), value, share});
    total += share;
  }
  if (wishes.top_p < 1) {
    keep_nucleus(kept, total, wishes.top_p);
    std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    total = 0;
    for (const Candidate& c : kept) total += c.share;
  }
  double left = uniform(wishes.seed, position) * total;
  for (const Candidate& c : kept) {
    if ((left -= c.share) < 0) return c.id;
  }
  return kept.back().id;
}

ffi::Error draw(ffi::Buffer<ffi::F32> logits, ffi::Buffer<ffi::F32> temperature, ffi::Buffer<ffi::S32> top_k,
                ffi::Buffer<ffi::F32> top_p, ffi::Buffer<ffi::F32> min_p, ffi::Buffer<ffi::U32> seed,
                ffi::Buffer<ffi::S32> positions, ffi::Buffer<ffi::S32> banned, Live live,
                ffi::ResultBuffer<ffi::S32> result, float softcap) {
  return answer([&] {
    const Tiles& tiles = require_tiles();
    check(logits.dimensions().size() == 2 && banned.dimensions().size() == 2, "logits are [rows, V], banned [rows, n]");
    const size_t rows = logits.dimensions()[0], count = logits.dimensions()[1], bans = banned.dimensions()[1];
    for (size_t size : {temperature.element_count(), top_k.element_count(), top_p.element_count(),
                        min_p.element_count(), seed.element_count(), positions.element_count(),
                        result->element_count(), static_cast<size_t>(banned.dimensions()[0])}) {
      check(size == rows, "what is wished must have the rows of the logits");
    }
    const size_t mattering = live_rows(live, rows);
    share(2.0 * static_cast<double>(mattering * count), mattering, [&](size_t row) {
      float* line = static_cast<float*>(scratch(kTask, count * sizeof(float)));
      std::memcpy(line, logits.typed_data() + row * count, count * sizeof(float));
      ban(line, 0, count, banned.typed_data() + row * bans, bans);
      const Wishes wishes{temperature.typed_data()[row], top_p.typed_data()[row], min_p.typed_data()[row],
                          top_k.typed_data()[row], seed.typed_data()[row]};
      const auto position = static_cast<uint32_t>(positions.typed_data()[row]);
      result->typed_data()[row] = draw_row(tiles, line, count, wishes, Cap{softcap}, position);
    });
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(OnechipDraw, draw,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()  // logits
                                  .Arg<ffi::Buffer<ffi::F32>>()  // temperature
                                  .Arg<ffi::Buffer<ffi::S32>>()  // top_k
                                  .Arg<ffi::Buffer<ffi::F32>>()  // top_p
                                  .Arg<ffi::Buffer<ffi::F32>>()  // min_p
                                  .Arg<ffi::Buffer<ffi::U32>>()  // seed
                                  .Arg<ffi::Buffer<ffi::S32>>()  // positions
                                  .Arg<ffi::Buffer<ffi::S32>>()  // banned
                                  .Arg<Live>()                   // how many rows matter
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Attr<float>("softcap"));

}  // namespace onechip
