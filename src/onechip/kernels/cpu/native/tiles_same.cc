// Two instruction sets against each other: the check that stands before the use of one that we cannot test at home.
#include <cstring>
#include <vector>

#include "tiles.h"

namespace onechip {
namespace {

constexpr size_t kPanels = 3, kBlocks = 9, kColumns = kBlocks * kBlock, kMostRows = 19;

struct Numbers {
  uint32_t state = 1;

  uint32_t next() { return (state = state * 1664525u + 1013904223u) >> 16; }
};

// A whole number of -8..8 as bf16.
uint16_t whole_bf16(Numbers& numbers) {
  const float value = static_cast<float>(static_cast<int>(numbers.next() % 17) - 8);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

struct Memory {
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines;

  explicit Memory(size_t bytes) : lines((bytes + 63) / 64) {}
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(lines.data());
  }
};

// Panels, and activations for them.
struct Product {
  Memory weight, values;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  Panels panels;
  Rows rows;

  explicit Product(Weight kind)
      : weight(kPanels * kBlocks * block_bytes(kind)), values(kMostRows * kColumns * sizeof(uint16_t)) {
    panels = {kind, Scale::kBf16, weight.as<uint8_t>(), kColumns};
    Numbers numbers;
    kind == Weight::kBf16 ? fill_bf16(numbers) : fill_int4(numbers);
  }

  void fill_bf16(Numbers& numbers) {
    for (size_t i = 0; i < kPanels * kLanes * kColumns; i++) weight.as<uint16_t>()[i] = whole_bf16(numbers);
    for (size_t i = 0; i < kMostRows * kColumns; i++) values.as<uint16_t>()[i] = whole_bf16(numbers);
    rows = {Activation::kBf16, values.as<void>(), nullptr, nullptr, kColumns};
  }

  void fill_int4(Numbers& numbers) {
    const size_t bytes = block_bytes(Weight::kInt4), scales_at = bytes - 64;
    for (size_t i = 0; i < kPanels * kBlocks * bytes; i++) {
      const bool is_high_byte = i % bytes >= scales_at && i % 2 == 1;  // of a scale: about 0.01
      weight.as<uint8_t>()[i] = is_high_byte ? 0x3c : static_cast<uint8_t>(numbers.next());
    }
    for (size_t group = 0; group < kMostRows * kColumns / kGroup; group++) {
      int32_t sum = 0;
      for (size_t i = group * kGroup; i < (group + 1) * kGroup; i++) {
        const int value = static_cast<int>(numbers.next() % 255) - 127;
        values.as<int8_t>()[i] = static_cast<int8_t>(value);
        sum += value;
      }
      sums.push_back(sum);
      scales.push_back(static_cast<float>(1 + numbers.next() % 100) / 999);
    }
    rows = {Activation::kInt8, values.as<void>(), scales.data(), sums.data(), kColumns};
  }

  std::vector<float> by(const Tiles& tiles, size_t count) const {
    std::vector<float> out(count * kPanels * kLanes);
    tiles.product(panels, kPanels, rows, 0, count, out.data(), kPanels * kLanes);
    return out;
  }
};

}  // namespace

bool same_products(const Tiles& one, const Tiles& other) {
  for (Weight kind : {Weight::kInt4, Weight::kBf16}) {
    const Product product(kind);
    for (size_t count : {size_t{1}, kMostRows}) {
      const std::vector<float> a = product.by(one, count), b = product.by(other, count);
      if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

}  // namespace onechip
