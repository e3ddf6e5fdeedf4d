// From here on code is compiled for ONECHIP_TARGET, in gcc's way and in clang's.
#define ONECHIP_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ONECHIP_CLANG_TARGET(features) \
  ONECHIP_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
ONECHIP_CLANG_TARGET(ONECHIP_TARGET)
#else
#define ONECHIP_GCC_TARGET(features) ONECHIP_PRAGMA(GCC target(features))
#pragma GCC push_options
ONECHIP_GCC_TARGET(ONECHIP_TARGET)
#endif
