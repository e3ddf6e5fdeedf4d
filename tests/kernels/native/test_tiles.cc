// Every function of every instruction set that this processor has, against scalar references in double.
#include "test_tiles.h"

int failures = 0;

int main() {
  const onechip::Tiles* const sets[] = {&onechip::kAvx512Bf16Tiles, &onechip::kAvx512VnniTiles, &onechip::kAvx2Tiles};
  const onechip::Tiles* const best = onechip::tiles();
  if (best == nullptr) {
    std::printf("this processor has no AVX2\n");
    return 0;
  }
  bool here = false;
  for (const onechip::Tiles* set : sets) {
    here = here || set == best;
    if (!here) continue;  // better than the processor, or than ONECHIP_CPU_ISA
    test_products(*set);
    test_elementwise(*set, *best);
    std::printf("%s: %d failures so far\n", set->name, failures);
  }
  return failures == 0 ? 0 : 1;
}
