"""Guides: each says which tokens one answer may go on with. On the host, without JAX."""
