// What the library says about itself.

#include "tiles.h"

#ifndef ONECHIP_SOURCES
#error "setup.py defines ONECHIP_SOURCES, the hash of the sources"
#endif

// The instruction set in use, as Tiles names it; null if this processor lacks the least of them.
extern "C" const char* onechip_instruction_set() {
  const onechip::Tiles* tiles = onechip::tiles();
  return tiles != nullptr ? tiles->name : nullptr;
}

extern "C" const char* onechip_sources() { return ONECHIP_SOURCES; }
