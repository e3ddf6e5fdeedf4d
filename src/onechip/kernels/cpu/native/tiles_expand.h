// Int4 and int8 as bf16 by vcvtne2ps2bf16. No guard; included after tiles_512.h where there is AVX-512 BF16.

// One block of int4 or int8 as bf16 pairs, 2,048 bytes; `next` will be read later.
template <Weight W, Scale S>
void expand_block(const uint8_t* w, uintptr_t next, uint8_t* out) {
  for (size_t line = 0; line < block_bytes(W); line += 64) prefetch(next + line);
  // Of lanes 0..15 (lower inputs) and 16..31 (upper inputs) of a vcvtne2ps2bf16: lane by lane the two of a pair.
  const I interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                        5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const F value_of = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
  for (int g = 0; g < 2; g++) {
    const F scale = load_scales<S>(w + (block_bytes(W) - 64) + 32 * g);
    auto put = [&](F lower, F upper, int pair) __attribute__((always_inline)) {
      const __m512bh both = _mm512_cvtne2ps_pbh(multiply(upper, scale), multiply(lower, scale));
      I words;
      memcpy(&words, &both, sizeof words);
      _mm512_storeu_si512(out + (kGroup / 2 * g + pair) * 64, _mm512_maskz_permutexvar_epi16(~0u, interleave, words));
    };
    for (int line = 0; line < (W == Weight::kInt4 ? 4 : 8); line++) {
      const I word = load_int(w + (W == Weight::kInt4 ? 256 : 512) * g + 64 * line);
      if constexpr (W == Weight::kInt4) {
        // vpermps looks at the lowest four bits of a lane alone: it masks and converts at once.
        auto look = [&](I at) __attribute__((always_inline)) {
          return _mm512_maskz_permutexvar_ps(0xffff, at, value_of);
        };
        put(look(word), look(shift_right<8>(word)), 2 * line);
        put(look(shift_right<16>(word)), look(shift_right<24>(word)), 2 * line + 1);
        put(look(shift_right<4>(word)), look(shift_right<12>(word)), 8 + 2 * line);
        put(look(shift_right<20>(word)), look(shift_right<28>(word)), 8 + 2 * line + 1);
      } else {
        put(to_float(shift_right_signed<24>(shift_left<24>(word))),
            to_float(shift_right_signed<24>(shift_left<16>(word))), 2 * line);
        put(to_float(shift_right_signed<24>(shift_left<8>(word))), to_float(shift_right_signed<24>(word)),
            2 * line + 1);
      }
    }
  }
}
