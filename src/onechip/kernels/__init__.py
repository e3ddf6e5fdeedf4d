"""The operations that speed hangs on. `api` holds their contract, `xla` the plain-JAX implementation."""
