"""transformers' generate on one checkpoint, timed: work as JSON lines in, seconds as JSON lines out.

Run by bench/engine.py with the Python of .venv-oracle. Greedy, bf16, exactly as many tokens as asked.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
model.eval()
for line in sys.stdin:
    work = json.loads(line)
    vocab = model.config.get_text_config().vocab_size
    prompts = torch.randint(vocab // 2, vocab, (work["requests"], work["prompt_tokens"]))
    count = work["output_tokens"]
    began = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(prompts, do_sample=False, min_new_tokens=count, max_new_tokens=count)
    seconds = time.perf_counter() - began
    assert out.shape[1] == work["prompt_tokens"] + count
    print(json.dumps({"seconds": seconds}), flush=True)
