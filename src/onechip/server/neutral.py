"""Fields of other servers that we do not support -> the values with which they ask for nothing.

Clients write a server's defaults out, and these are taken; other values are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Values = tuple[Any, ...]

ANY: Final[Values] = (object(),)
"""No value asks for anything."""

_ZERO: Values = (0, 0.0)
_ONE: Values = (1, 1.0)

SAMPLERS: Mapping[str, Values] = {
    "dry_multiplier": _ZERO,
    "dry_base": ANY,
    "dry_allowed_length": ANY,
    "dry_penalty_last_n": ANY,
    "dry_sequence_breakers": ANY,
    "dynatemp_range": _ZERO,
    "dynatemp_exponent": ANY,
    "mirostat": _ZERO,
    "mirostat_tau": ANY,
    "mirostat_eta": ANY,
    "top_n_sigma": (*_ZERO, -1, -1.0),
    "typical_p": _ONE,
    "xtc_probability": _ZERO,
    "xtc_threshold": ANY,
    "min_keep": _ZERO,
    "samplers": (),
}
"""llama.cpp's where they are off; what only sets one of them, which is off, asks for nothing. `samplers` is
their order, and in none that it has is ours.
"""

LLAMA_CPP: Mapping[str, Values] = {
    **SAMPLERS,
    "cache_prompt": ANY,
    "id_slot": ANY,
    "lora": ([],),
    "n_indent": _ZERO,
    "n_keep": ANY,
    "n_probs": _ZERO,
    "post_sampling_probs": (False,),
    "response_fields": ([],),
    "return_progress": (False,),
    "return_tokens": (False,),
    "t_max_predict_ms": (*_ZERO, -1),
    "timings_per_token": (False,),
}
"""What llama.cpp's completion has, and its other paths take. Which prefixes are kept and where
(`cache_prompt`, `id_slot`, `n_keep`) changes the time that an answer takes and nothing else: a reused prefix
gives the same text.
"""

OPENAI: Mapping[str, Values] = {
    "audio": (),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}

VLLM_AND_SGLANG: Mapping[str, Values] = {
    "custom_params": ({},),
    "kv_transfer_params": ({},),
    "length_penalty": _ONE,
    "logits_processors": ([],),
    "mm_processor_kwargs": ({},),
    "priority": (0,),
    "return_hidden_states": (False,),
    "session_id": ANY,
    "spaces_between_special_tokens": (True,),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
}

CHAT: Mapping[str, Values] = {
    "add_special_tokens": (False,),
    "documents": ([],),
    "parse_tool_calls": (True,),
    "reasoning_format": ("auto", "deepseek"),
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
}
"""What chat does anyhow, under the names of llama.cpp, SGLang and vLLM: thoughts and calls are told from
text, also in a stream, and the template writes the special tokens.
"""
