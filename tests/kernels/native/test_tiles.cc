// Every function of every instruction set that this processor has, against scalar references in double; and AMX's
// kernels on emulated tiles, on any processor that can compute what surrounds the tiles.
//
//   test_tiles [NAME]...  all, or those of these names
#include "test_tiles.h"

namespace onechip {
extern const Tiles kEmulatedAvx512, kEmulatedAvx2;
}

using namespace onechip;

int failures = 0;

namespace {

bool asked(int count, char** words, const Tiles& tiles) {
  for (int i = 1; i < count; i++)
    if (std::strcmp(words[i], tiles.name) == 0) return true;
  return count == 1;
}

void say(const Tiles& tiles) { std::printf("%s: %d failures so far\n", tiles.name, failures); }

}  // namespace

int main(int count, char** words) {
  const Tiles* const sets[] = {
#ifdef ONECHIP_AMX
      &kAmxTiles,
#endif
      &kAvx512Bf16Tiles, &kAvx512VnniTiles, &kAvx2Tiles};
  const Tiles* const best = tiles();
  if (best == nullptr) {
    std::printf("this processor has no AVX2\n");
    return 0;
  }
  bool here = false, avx512_bf16 = false;
  for (const Tiles* set : sets) {
    here = here || set == best;
    if (!here) continue;  // better than the processor, or than ONECHIP_CPU_ISA
    avx512_bf16 = avx512_bf16 || set == &kAvx512Bf16Tiles;
    test_same(*set, *best);
    if (!asked(count, words, *set)) continue;
    test_products(*set);
    test_elementwise(*set, *best);
    say(*set);
  }
  for (const Tiles* set : {&kEmulatedAvx512, &kEmulatedAvx2}) {
    if ((set == &kEmulatedAvx512 && !avx512_bf16) || !asked(count, words, *set)) continue;
    test_products(*set);
    test_tile_order(*set);
    test_same(*set, *best);
    say(*set);
  }
#ifdef ONECHIP_AMX
  if (best == &kAmxTiles) test_same_bits(kAmxTiles, kEmulatedAvx512);
#endif
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
