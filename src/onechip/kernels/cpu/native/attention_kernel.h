// The block, merge and finish of AttentionKernels, written once over `Simd`, the vectors of one instruction set and one
// stored type. Each attention_<set>.cc includes this into its own unnamed namespace's types; nothing here is shared.
//
// Simd has: V (a vector of kLanes floats), Stored, Query, Weight (what a softmax weight is stored as);
//   kDepth   elements of a query that `dot` takes at once: key(), key_tail(), query(), dot()
//   kScored  queries whose scores with 4 keys are computed together: reduce4()
//   kPair    keys whose values are added at once: values(), values_tail(), weight(), mac()
//   kChunk   columns of a value that two vectors of sums hold
//   kSummed  queries whose values are summed together
//   weights_of() says where weights go in the room behind scores, put_weights() stores kLanes of them and gives back
//   what was stored, put_out() stores a chunk of the result.
#pragma once

#include "attention.h"

#define ONECHIP_INLINE static inline __attribute__((always_inline))

namespace onechip {
namespace {

// Into the second-level cache: the first has no room for what is in use and what comes next (twice as slow so).
ONECHIP_INLINE void fetch(const void* row) { __builtin_prefetch(row, 0, 2); }

// What the queries [at, at + kTogether) see of a block, in whole steps.
struct Seen {
  int first, last;
};

ONECHIP_INLINE Seen seen_by(const Queries& queries, size_t at, size_t count) {
  Seen seen{kKeys, 0};
  for (size_t i = at; i < at + count; ++i) {
    if (queries.first[i] >= queries.last[i]) continue;
    if (queries.first[i] < seen.first) seen.first = queries.first[i];
    if (queries.last[i] > seen.last) seen.last = queries.last[i];
  }
  seen.first = seen.first / kKeyStep * kKeyStep;
  seen.last = (seen.last + kKeyStep - 1) / kKeyStep * kKeyStep;
  return seen;
}

// Scores of N queries with 4 keys -> scores[n * kKeys + 0..3]; rows that come later, if any, are fetched meanwhile.
template <class Simd, int N>
ONECHIP_INLINE void score(const typename Simd::Query* queries, size_t stride, const void* const* keys,
                          const void* const* later, int width, float* scores) {
  using V = typename Simd::V;
  using Stored = typename Simd::Stored;
  V sums[N][4];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sums[n][k] = Simd::zero();
  const Stored* rows[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) rows[k] = static_cast<const Stored*>(keys[k]);
  int column = 0;
  for (; column + Simd::kDepth <= width; column += Simd::kDepth) {
    typename Simd::Key key[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      key[k] = Simd::key(rows[k] + column);
      if (later) fetch(static_cast<const Stored*>(later[k]) + column);
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const auto query = Simd::query(queries + n * stride + column);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sums[n][k] = Simd::dot(sums[n][k], query, key[k]);
    }
  }
  if (column < width) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const auto query = Simd::query(queries + n * stride + column);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sums[n][k] = Simd::dot(sums[n][k], query, Simd::key_tail(rows[k] + column));
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) Simd::reduce4(sums[n][0], sums[n][1], sums[n][2], sums[n][3], scores + n * kKeys);
}

// Scores of `count` queries with the keys of one step; `later` are the rows of the next, or null.
template <class Simd>
void score_step(const typename Simd::Query* queries, size_t count, size_t stride, const void* const* keys,
                const void* const* later, int width, float* scores) {
  constexpr int kScored = Simd::kScored;
  for (int key = 0; key < kKeyStep; key += 4) {
    const void* const* fetched = later ? later + key : nullptr;
    size_t at = 0;
    for (; at + kScored <= count; at += kScored, fetched = nullptr)
      score<Simd, kScored>(queries + at * stride, stride, keys + key, fetched, width, scores + at * kKeys + key);
    for (; at < count; ++at, fetched = nullptr)
      score<Simd, 1>(queries + at * stride, stride, keys + key, fetched, width, scores + at * kKeys + key);
  }
}

// Not tiles_elementwise.h's: that one has 16 lanes, subnormal and infinite results, which cost a second scaling by a
// power of two, and passes NaN on; weights of attention are at most 1, and this is their inner loop.
//
// e^x for x <= 0, 0 or the smallest normal number below -87; Cephes's expf, within 2 ulp.
template <class Simd>
ONECHIP_INLINE typename Simd::V exp(typename Simd::V x) {
  using V = typename Simd::V;
  x = Simd::max(x, Simd::set(Simd::kLowest));
  const V n = Simd::round(Simd::mul(x, Simd::set(1.44269504088896341F)));
  const V r = Simd::fma(n, Simd::set(2.12194440e-4F), Simd::fma(n, Simd::set(-0.693359375F), x));
  V sum = Simd::set(1.9875691500e-4F);
  sum = Simd::fma(sum, r, Simd::set(1.3981999507e-3F));
  sum = Simd::fma(sum, r, Simd::set(8.3334519073e-3F));
  sum = Simd::fma(sum, r, Simd::set(4.1665795894e-2F));
  sum = Simd::fma(sum, r, Simd::set(1.6666665459e-1F));
  sum = Simd::fma(sum, r, Simd::set(5.0000001201e-1F));
  sum = Simd::add(Simd::fma(sum, Simd::mul(r, r), r), Simd::set(1));
  return Simd::times_power(sum, n);
}

// Scores -> weights exp(score - highest) of one query, 0 where it does not see, over the keys that its group sees.
template <class Simd>
void weigh(const float* scores, Seen group, int first, int last, typename Simd::Weight* weights, float* highest,
           float* total) {
  using V = typename Simd::V;
  constexpr int kLanes = Simd::kLanes;
  V most = Simd::set(kNothing);
  for (int at = first / kLanes * kLanes; at < last; at += kLanes)
    most = Simd::max(most, Simd::keep(Simd::load(scores + at), first - at, last - at, Simd::set(kNothing)));
  *highest = Simd::highest(most);
  const V shift = Simd::set(*highest);
  V sum = Simd::zero();
  for (int at = group.first; at < group.last; at += kLanes) {
    V weight = Simd::zero();
    if (at < last && at + kLanes > first)
      weight = Simd::keep(exp<Simd>(Simd::sub(Simd::load(scores + at), shift)), first - at, last - at, Simd::zero());
    sum = Simd::add(sum, Simd::put_weights(weights + at, weight));
  }
  *total = Simd::sum(sum);
}

// out[n] += weights[n] times values, N queries, keys [first, last), from 0 if `begin`; `later` as many rows, or null.
template <class Simd, int N>
ONECHIP_INLINE void add_values(const typename Simd::Weight* weights, const void* const* values, int first, int last,
                               const void* const* later, int width, size_t stride, bool begin, float* out) {
  using V = typename Simd::V;
  using Stored = typename Simd::Stored;
  for (int column = 0; column < width; column += Simd::kChunk) {
    const bool whole = column + Simd::kChunk <= width;
    V sums[N][2];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      float* at = out + n * stride + column;
      sums[n][0] = begin ? Simd::zero() : Simd::load(at);
      sums[n][1] = begin ? Simd::zero() : Simd::load(at + Simd::kLanes);
    }
    for (int key = first; key < last; key += Simd::kPair) {
      const Stored* row = static_cast<const Stored*>(values[key]) + column;
      const Stored* next = static_cast<const Stored*>(values[key + Simd::kPair - 1]) + column;
      if (later) {
#pragma GCC unroll 2
        for (int k = 0; k < Simd::kPair; ++k) fetch(static_cast<const Stored*>(later[key - first + k]) + column);
      }
      const auto pair = whole ? Simd::values(row, next) : Simd::values_tail(row, next);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const auto weight = Simd::weight(weights + n * kKeys + key);
        sums[n][0] = Simd::mac(sums[n][0], weight, pair.low);
        sums[n][1] = Simd::mac(sums[n][1], weight, pair.high);
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      float* at = out + n * stride + column;
      Simd::store(at, sums[n][0]);
      Simd::store(at + Simd::kLanes, sums[n][1]);
    }
  }
}

template <class Simd>
void add_values_of(const typename Simd::Weight* weights, const void* const* values, int first, int last,
                   const void* const* later, int width, size_t count, size_t stride, bool begin, float* out) {
  constexpr int kSummed = Simd::kSummed;
  size_t at = 0;
  for (; at + kSummed <= count; at += kSummed, later = nullptr)
    add_values<Simd, kSummed>(weights + at * kKeys, values, first, last, later, width, stride, begin,
                              out + at * stride);
  for (; at + kSummed / 2 <= count; at += kSummed / 2, later = nullptr)
    add_values<Simd, kSummed / 2>(weights + at * kKeys, values, first, last, later, width, stride, begin,
                                  out + at * stride);
  for (; at < count; ++at, later = nullptr)
    add_values<Simd, 1>(weights + at * kKeys, values, first, last, later, width, stride, begin, out + at * stride);
}

template <class Simd>
void attend_block(const KeyBlock& block, const Queries& queries, float* room, const Partial& partial) {
  using Query = typename Simd::Query;
  using Weight = typename Simd::Weight;
  const size_t stride = static_cast<size_t>(padded_width(queries.width));
  const Query* values = static_cast<const Query*>(queries.values);
  const size_t count = queries.count;
  Weight* weights = Simd::weights_of(room, count);
  for (int key = block.first; key < block.last; key += kKeyStep)
    for (size_t at = 0; at < count; at += kTogether) {
      const size_t few = count - at < kTogether ? count - at : kTogether;
      const Seen seen = seen_by(queries, at, few);
      if (key < seen.first || key >= seen.last) continue;
      const void* const* later = nullptr;
      if (at == 0) later = key + kKeyStep < block.last ? block.keys + key + kKeyStep : block.values + block.first;
      if (at == kTogether) later = block.values + key;
      score_step<Simd>(values + at * stride, few, stride, block.keys + key, later, queries.width,
                       room + at * kKeys + key);
    }
  // One group of queries reads values from memory: few at a time, so that they stay in the first-level cache for all
  // columns. Several groups find them in the second level: all at once, so that sums do not come and go.
  const bool alone = count <= kTogether;
  const int step = alone ? kKeyStep : kKeys;
  for (size_t at = 0; at < count; at += kTogether) {
    const size_t few = count - at < kTogether ? count - at : kTogether;
    const Seen seen = seen_by(queries, at, few);
    for (size_t i = at; i < at + few; ++i)
      weigh<Simd>(room + i * kKeys, seen, queries.first[i], queries.last[i], weights + i * kKeys, partial.highest + i,
                  partial.total + i);
    for (int key = seen.first; key < seen.last; key += step) {
      const int end = key + step < seen.last ? key + step : seen.last;
      const void* const* later = !alone ? nullptr : end < seen.last ? block.values + end : block.next;
      add_values_of<Simd>(weights + at * kKeys, block.values, key, end, later, queries.width, few, stride,
                          key == seen.first, partial.out + at * stride);
    }
  }
}

template <class Simd>
void merge_partials(const Partial& sum, const Partial& next, size_t count, int width) {
  using V = typename Simd::V;
  const int stride = padded_width(width);
  for (size_t i = 0; i < count; ++i) {
    if (next.total[i] == 0) continue;
    float* out = sum.out + i * static_cast<size_t>(stride);
    const float* add = next.out + i * static_cast<size_t>(stride);
    if (sum.total[i] == 0) {
      sum.highest[i] = next.highest[i];
      sum.total[i] = next.total[i];
      for (int column = 0; column < stride; column += Simd::kLanes)
        Simd::store(out + column, Simd::load(add + column));
      continue;
    }
    const float highest = sum.highest[i] > next.highest[i] ? sum.highest[i] : next.highest[i];
    const V old = exp<Simd>(Simd::set(sum.highest[i] - highest));
    const V fresh = exp<Simd>(Simd::set(next.highest[i] - highest));
    sum.highest[i] = highest;
    sum.total[i] = Simd::first(old) * sum.total[i] + Simd::first(fresh) * next.total[i];
    for (int column = 0; column < stride; column += Simd::kLanes)
      Simd::store(out + column, Simd::fma(Simd::load(out + column), old, Simd::mul(Simd::load(add + column), fresh)));
  }
}

template <class Simd>
void finish_partial(const Partial& partial, size_t index, int width, void* out) {
  using Stored = typename Simd::Stored;
  const float* sums = partial.out + index * static_cast<size_t>(padded_width(width));
  const auto total = Simd::set(partial.total[index]);
  for (int column = 0; column < width; column += Simd::kChunk)
    Simd::put_out(Simd::div(Simd::load(sums + column), total), Simd::div(Simd::load(sums + column + Simd::kLanes), total),
                  static_cast<Stored*>(out) + column, width - column);
}

template <class Simd>
constexpr AttentionKernels kernels_of(bool bf16_queries) {
  return {bf16_queries, attend_block<Simd>, merge_partials<Simd>, finish_partial<Simd>};
}

}  // namespace
}  // namespace onechip
