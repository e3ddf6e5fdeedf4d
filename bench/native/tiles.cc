// The tiles alone, against what the same processor does at best in the same run: bytes of weights read a second
// against a loop that only reads, products a second against a loop that only multiplies. 1,536 and 12,288 inputs are E2B's; a tile does not see the outputs.
//
//   g++ -std=c++20 -O3 -ffp-contract=off -fno-math-errno -pthread -I src/onechip/kernels/cpu/native
//       bench/native/tiles.cc src/onechip/kernels/cpu/native/tiles*.cc -o /tmp/bench_tiles
//   /tmp/bench_tiles [all | int4 | int8 | bf16 | exact4 | exact8 | f32 | peaks]...
//
// ONECHIP_CPU_ISA picks the instruction set. Figures are the best of several runs: others may share the machine.
#include "tiles.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace onechip;

namespace {

constexpr size_t kArena = size_t{1} << 29;  // of weights: many times the last cache
constexpr int kThreads = 2;
constexpr size_t kMostRows = 256, kMostColumns = 12288;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of `runs` times of body(thread), started on all threads at once.
double best_time(int threads, int runs, const std::function<void(int)>& body) {
  double best = 1e9;
  for (int run = 0; run < runs; run++) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> others;
    for (int t = 1; t < threads; t++)
      others.emplace_back([&, t] {
        ready++;
        while (!go) _mm_pause();
        body(t);
      });
    while (ready < threads - 1) _mm_pause();
    const double start = seconds();
    go = true;
    body(0);
    for (auto& other : others) other.join();
    best = std::min(best, seconds() - start);
  }
  return best;
}

uint8_t* huge(size_t bytes) {
  void* at = mmap(nullptr, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint8_t* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(at) + (2 << 20) - 1) >> 21 << 21);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  memset(aligned, 0x3f, bytes);  // in any type a number near its middle: no subnormal ones, which are slow
  return aligned;
}

// Twelve independent chains of one instruction: all of them are in flight at any time.
#define CHAINS(instruction)                                                                                          \
  for (long i = 0; i < loops; i++)                                                                                   \
  asm volatile(instruction " %%zmm12, %%zmm13, %%zmm0\n" instruction " %%zmm12, %%zmm13, %%zmm1\n" instruction       \
                           " %%zmm12, %%zmm13, %%zmm2\n" instruction " %%zmm12, %%zmm13, %%zmm3\n" instruction       \
                           " %%zmm12, %%zmm13, %%zmm4\n" instruction " %%zmm12, %%zmm13, %%zmm5\n" instruction       \
                           " %%zmm12, %%zmm13, %%zmm6\n" instruction " %%zmm12, %%zmm13, %%zmm7\n" instruction       \
                           " %%zmm12, %%zmm13, %%zmm8\n" instruction " %%zmm12, %%zmm13, %%zmm9\n" instruction       \
                           " %%zmm12, %%zmm13, %%zmm10\n" instruction " %%zmm12, %%zmm13, %%zmm11\n" ::              \
                               : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",     \
                                 "xmm10", "xmm11")
#define CHAINS_256(instruction)                                                                                      \
  for (long i = 0; i < loops; i++)                                                                                   \
  asm volatile(instruction " %%ymm12, %%ymm13, %%ymm0\n" instruction " %%ymm12, %%ymm13, %%ymm1\n" instruction       \
                           " %%ymm12, %%ymm13, %%ymm2\n" instruction " %%ymm12, %%ymm13, %%ymm3\n" instruction       \
                           " %%ymm12, %%ymm13, %%ymm4\n" instruction " %%ymm12, %%ymm13, %%ymm5\n" instruction       \
                           " %%ymm12, %%ymm13, %%ymm6\n" instruction " %%ymm12, %%ymm13, %%ymm7\n" instruction       \
                           " %%ymm12, %%ymm13, %%ymm8\n" instruction " %%ymm12, %%ymm13, %%ymm9\n" instruction       \
                           " %%ymm12, %%ymm13, %%ymm10\n" instruction " %%ymm12, %%ymm13, %%ymm11\n" ::              \
                               : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",     \
                                 "xmm10", "xmm11")

#ifdef ONECHIP_AMX
// Four chains on full tiles; more do not fit.
#define TILE_CHAINS(instruction)                                                                            \
  for (long i = 0; i < loops; i++)                                                                          \
  asm volatile(instruction " %%tmm6, %%tmm4, %%tmm0\n" instruction " %%tmm6, %%tmm5, %%tmm1\n" instruction  \
                           " %%tmm7, %%tmm4, %%tmm2\n" instruction " %%tmm7, %%tmm5, %%tmm3\n" ::)

void tile_chain(Activation kind, long loops) {
  struct alignas(64) {
    uint8_t palette = 1, other[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  if (kind == Activation::kInt8)
    TILE_CHAINS("tdpbssd");
  else
    TILE_CHAINS("tdpbf16ps");
  asm volatile("tilerelease");
}
#endif

void chain(Activation kind, const std::string& isa, long loops) {
  if (isa == "avx2") {
    if (kind == Activation::kInt8)
      CHAINS_256("vpmaddubsw");
    else
      CHAINS_256("vfmadd231ps");
  } else if (kind == Activation::kInt8) {
    CHAINS("vpdpbusd");
  } else if (kind == Activation::kBf16 && isa == "avx512_bf16") {
    CHAINS("vdpbf16ps");
  } else {
    CHAINS("vfmadd231ps");
  }
}

// Multiplications and additions a second, in thousands of millions, on one thread. AVX2's int8 counts the
// multiplication alone: with its sums it cannot reach half of this.
double peak(Activation kind, const std::string& isa) {
#ifdef ONECHIP_AMX
  if (isa == "amx" && kind != Activation::kF32) {
    const long loops = 20'000;
    const int each = kind == Activation::kInt8 ? 64 : 32;
    return 2.0 * loops * 4 * 16 * 16 * each / best_time(1, 100, [&](int) { tile_chain(kind, loops); }) / 1e9;
  }
#endif
  const int lanes = isa == "avx2" ? 8 : 16;
  const bool pairs = kind == Activation::kBf16 && isa == "avx512_bf16";
  const int each = kind == Activation::kInt8 ? 4 : pairs ? 2 : 1;
  const long loops = 200'000;
  return 2.0 * loops * 12 * lanes * each / best_time(1, 100, [&](int) { chain(kind, isa, loops); }) / 1e9;
}

__attribute__((target("avx2"))) void read_all(const uint8_t* at, size_t bytes) {
  __m256i sum[4] = {};
  for (size_t i = 0; i < bytes; i += 128)
    for (int k = 0; k < 4; k++)
      sum[k] = _mm256_xor_si256(sum[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + i + 32 * k)));
  volatile int keep = _mm256_extract_epi32(sum[0], 0) ^ _mm256_extract_epi32(sum[1], 0) ^
                      _mm256_extract_epi32(sum[2], 0) ^ _mm256_extract_epi32(sum[3], 0);
  (void)keep;
}

// A part of the arena for each run, the next one each time, so that none is in a cache when its turn comes.
const uint8_t* next_part(const uint8_t* arena, size_t bytes) {
  static size_t at = 0;
  at = at + 2 * bytes > kArena ? 0 : at + (bytes + 63) / 64 * 64;
  return arena + at;
}

// Thousands of millions of bytes a second, each thread reading a part of its own: the fastest way on Zen 4.
double read_rate(const uint8_t* arena, int threads) {
  const size_t bytes = size_t{1} << 25, share = bytes / threads / 128 * 128;
  double best = 1e9;
  for (int run = 0; run < 100; run++) {
    const uint8_t* at = next_part(arena, bytes);
    best = std::min(best, best_time(threads, 1, [&](int thread) { read_all(at + thread * share, share); }));
  }
  return static_cast<double>(share) * threads / best / 1e9;
}

struct Job {
  const char* name;
  Weight weight;
  Activation activation;
};

const Job kJobs[] = {
    {"int4", Weight::kInt4, Activation::kInt8},   {"int8", Weight::kInt8, Activation::kInt8},
    {"bf16", Weight::kBf16, Activation::kBf16},   {"exact4", Weight::kInt4, Activation::kBf16},
    {"exact8", Weight::kInt8, Activation::kBf16}, {"f32", Weight::kBf16, Activation::kF32},
};

// Seconds for `calls` calls of `step` panels each, from memory or over and over the same.
double product_time(const Tiles& tiles, const Job& job, const uint8_t* arena, size_t calls, size_t step, const Rows& x,
                    size_t rows, bool cached, float* out, int threads) {
  const size_t call_bytes = step * (x.columns / kBlock) * block_bytes(job.weight), width = step * kLanes;
  double best = 1e9, spent = 0;
  for (int run = 0; run < 200 && spent < 0.2; run++) {
    const uint8_t* at = cached ? arena : next_part(arena, calls * call_bytes);
    std::atomic<size_t> next{0};
    const double time = best_time(threads, 1, [&](int thread) {
      for (size_t i; (i = next.fetch_add(1)) < calls;) {
        const Panels some{job.weight, Scale::kBf16, cached ? at + thread * call_bytes : at + i * call_bytes, x.columns};
        tiles.product(some, step, x, 0, rows, out + thread * rows * width, width);
      }
    });
    best = std::min(best, time);
    spent += time;
  }
  return best;
}

void run(const Tiles& tiles, const Job& job, const uint8_t* arena, const double (&read)[kThreads + 1], float* out) {
  const double most = peak(job.activation, tiles.name);
  std::printf("\n%s, %s: peak %.0f GOP/s a thread\n", job.name, tiles.name, most);
  std::printf("%6s %5s %6s %7s | %6s %5s | %6s %5s\n", "inputs", "rows", "from", "threads", "GB/s", "read", "GOP/s",
              "peak");
  static uint8_t* values = huge(kMostRows * kMostColumns * 4);
  const std::vector<float> scales(kMostRows * kMostColumns / kGroup, 0.01f);
  const std::vector<int32_t> sums(kMostRows * kMostColumns / kGroup, 32);
  for (size_t columns : {size_t{1536}, kMostColumns}) {
    const size_t panel_bytes = columns / kBlock * block_bytes(job.weight);
    const Rows x{job.activation, values, scales.data(), sums.data(), columns};
    const size_t step = std::clamp<size_t>((size_t{3} << 17) / panel_bytes, 4, 16);  // panels that a cache holds
    for (size_t rows : {1, 2, 4, 8, 16, 64, 256}) {
      // About 3 ms a run: short enough to fall between others' turns on the processor.
      const double operations = 2.0 * rows * step * kLanes * columns;
      const size_t calls = std::clamp<size_t>(static_cast<size_t>(1e9 / operations), 4, (size_t{1} << 25) / (step * panel_bytes));
      for (bool cached : {false, true}) {
        for (int threads = 1; threads <= kThreads; threads++) {
          const double time = product_time(tiles, job, arena, calls, step, x, rows, cached, out, threads);
          const double bytes = static_cast<double>(calls * step * panel_bytes) / time / 1e9;
          const double rate = operations * calls / time / 1e9;
          std::printf("%6zu %5zu %6s %7d | %6.1f %4.0f%% | %6.0f %4.0f%%\n", columns, rows, cached ? "cache" : "memory",
                      threads, bytes, 100 * bytes / read[threads], rate, 100 * rate / (most * threads));
        }
      }
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const Tiles* set = tiles();
  if (set == nullptr) return 1;
  uint8_t* arena = huge(kArena);
  double read[kThreads + 1] = {};
  for (int threads = 1; threads <= kThreads; threads++) {
    read[threads] = read_rate(arena, threads);
    std::printf("read, %d threads: %.1f GB/s\n", threads, read[threads]);
  }
  for (Activation kind : {Activation::kInt8, Activation::kBf16, Activation::kF32})
    std::printf("peak %s: %.0f GOP/s a thread\n",
                kind == Activation::kInt8 ? "int8" : kind == Activation::kBf16 ? "bf16" : "f32",
                peak(kind, set->name));
  float* out = reinterpret_cast<float*>(huge(size_t{64} << 20));
  for (const Job& job : kJobs)
    for (int i = 1; i < count; i++)
      if (words[i] == std::string("all") || words[i] == std::string(job.name)) run(*set, job, arena, read, out);
}
