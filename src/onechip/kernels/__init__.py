"""The operations that speed hangs on: `api` holds their contract, `xla` does them in plain JAX, `cpu` in C++;
`choice` says which of the two a chip gets.
"""
