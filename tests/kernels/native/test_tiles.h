// What the tests of the tiles share: expectations, random numbers, memory with nothing around it, 16-bit floats.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "tiles.h"

extern int failures;

#define EXPECT(condition, ...)                              \
  do {                                                      \
    if (!(condition) && ++failures <= 20) {                 \
      std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                             \
      std::printf("\n");                                    \
    }                                                       \
  } while (0)

void test_products(const onechip::Tiles& tiles);
void test_tile_order(const onechip::Tiles& amx);
void test_same_bits(const onechip::Tiles& one, const onechip::Tiles& other);
void test_same(const onechip::Tiles& one, const onechip::Tiles& other);
void test_elementwise(const onechip::Tiles& tiles, const onechip::Tiles& other);

// A multiple of 64 bytes from an address that is one too, on the heap, where the address sanitizer watches its ends.
template <class T>
struct Aligned {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* at, size_t) { ::operator delete(at, std::align_val_t(64)); }
  bool operator==(const Aligned&) const { return true; }
};

template <class T>
using Array = std::vector<T, Aligned<T>>;

struct Random {
  uint64_t state;

  uint32_t next() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<uint32_t>(state >> 32);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint32_t>(n)); }
  float uniform(float low, float high) { return low + (high - low) * (static_cast<float>(next()) / 4294967296.0f); }
};

inline uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

inline float float_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

inline bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

inline float from_bf16(uint16_t x) { return float_of(static_cast<uint32_t>(x) << 16); }

// To nearest even, by the distance to both neighbours.
inline uint16_t to_bf16(float x) {
  const uint32_t u = bits_of(x);
  if (std::isnan(x)) return static_cast<uint16_t>(u >> 16 | 0x40);
  const uint32_t rest = u & 0xffff, down = u >> 16;
  if (rest != 0x8000) return static_cast<uint16_t>(rest > 0x8000 ? down + 1 : down);
  return static_cast<uint16_t>(down % 2 == 0 ? down : down + 1);
}

// Normal halves only.
inline float from_half(uint16_t x) {
  return std::ldexp(1.0f + static_cast<float>(x & 0x3ff) / 1024.0f, (x >> 10 & 31) - 15) * (x & 0x8000 ? -1.0f : 1.0f);
}
