#!/usr/bin/env bash
# Correctness on a GPU, then figures: about ten minutes on an H200. The figures belong in docs/gpu.md, with the date.
#
#   bench/gpu.sh [OUT]     with the machine's own python3, which must have JAX for its GPU.
#   WHEELS=DIR             wheels of what that python3 lacks (msgspec, llguidance), if the machine has no network.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-${OUT:-gpu-results}}
mkdir -p "$out"
export PYTHONPATH=src XLA_PYTHON_CLIENT_PREALLOCATE=false
[ -z "${WHEELS:-}" ] || python3 -m pip install --quiet --no-index --find-links "$WHEELS" msgspec llguidance

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$out/machine.txt"
python3 -c 'import jax; assert jax.default_backend() == "gpu", jax.devices(); print(jax.__version__)' \
  | tee -a "$out/machine.txt"

# A failed test is a finding, not a reason to leave without figures.
timeout 240 python3 -m pytest tests/kernels/test_xla.py tests/engine/test_programs.py tests/engine/test_core.py \
  tests/engine/test_steering.py tests/engine/test_reuse.py tests/engine/test_scoring.py 2>&1 | tail -40 | tee "$out/tests.txt" || true

timeout 120 python3 bench/engine.py acorn | tee "$out/acorn.txt"
timeout 90 python3 -m bench.steering acorn --repeats 3 | tee "$out/steering.txt" || true
timeout 60 python3 -m bench.scoring acorn --repeats 3 | tee "$out/scoring.txt" || true
model=$(mktemp -d)/e2b
python3 -m onechip.cli synth "$model" --shape e2b --dtype bf16
for dtype in bf16 w4a16; do
  timeout 180 python3 bench/engine.py "$model" --dtype "$dtype" --repeats 3 | tee "$out/e2b-$dtype.txt" || true
done
