"""torch's own CPU kernels, timed: work as JSON lines in, seconds as JSON lines out.

Run by bench/kernels.py with the Python of .venv-oracle. Work is {"kernel", "rows", "outputs", "inputs",
"rotated_bytes", "repeats"}; weights take turns so that they come from memory. The answer is {"seconds":
[...]}, one figure a call, or {"error": why torch has no such kernel here}.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

GROUP = 32
CALLS = 8
"""Timed together: the clock and the interpreter cost less than a small product."""

Product = Callable[[torch.Tensor], torch.Tensor]


def bf16(outputs: int, inputs: int) -> tuple[float, Product]:
    """Bytes of a weight, and the product with it; activations in bf16, as in all of these."""
    weight = torch.randn(outputs, inputs).to(torch.bfloat16)
    return 2.0 * outputs * inputs, lambda x: torch.nn.functional.linear(x, weight)


def int8(outputs: int, inputs: int) -> tuple[float, Product]:
    """One scale for each output."""
    weight = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
    scales = torch.full((outputs,), 0.01, dtype=torch.bfloat16)
    return 1.0 * outputs * inputs, lambda x: torch.ops.aten._weight_int8pack_mm(x, weight, scales)


def int4(outputs: int, inputs: int) -> tuple[float, Product]:
    """A scale and a zero for 32 inputs of each output."""
    values = torch.randint(0, 16, (outputs, inputs), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1)
    scales = torch.full((inputs // GROUP, outputs, 2), 0.01, dtype=torch.bfloat16)
    size = outputs * inputs * (0.5 + 4 / GROUP)
    return size, lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, scales)


KERNELS = {"bf16": bf16, "int8": int8, "int4": int4}


@functools.lru_cache(maxsize=1)
def products(kernel: str, outputs: int, inputs: int, rotated_bytes: int) -> list[Product]:
    """As many weights as fill `rotated_bytes`."""
    size, first = KERNELS[kernel](outputs, inputs)
    more = math.ceil(rotated_bytes / size) - 1
    return [first, *(KERNELS[kernel](outputs, inputs)[1] for _ in range(more))]


def seconds(work: dict[str, Any]) -> list[float]:
    """Of one call each."""
    turns = products(work["kernel"], work["outputs"], work["inputs"], work["rotated_bytes"])
    x = torch.randn(work["rows"], work["inputs"]).to(torch.bfloat16)
    calls = min(CALLS, len(turns))
    found = []
    for repeat in range(work["repeats"] + 1):
        began = time.perf_counter()
        for call in range(calls):
            turns[(repeat * calls + call) % len(turns)](x)
        found.append((time.perf_counter() - began) / calls)
    return found[1:]


def main() -> None:
    for line in sys.stdin:
        try:
            with torch.inference_mode():
                answer: dict[str, Any] = {"seconds": seconds(json.loads(line))}
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            answer = {"error": str(error).splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)


main()
