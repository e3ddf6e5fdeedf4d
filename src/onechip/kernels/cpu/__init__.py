"""Kernels in C++ for x86-64: `library` loads them, `weights` packs for them, `ops` calls them."""
