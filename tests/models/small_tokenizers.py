"""Small tokenizers of the kinds that other families have, built here: nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

TEXT = [
    "Tom has twelve apples and gives five to Anna.",
    "Où est la gare ? 漢字 🌰🌰 naïve",
    "if x:\n    y = 1\n",
]
LLAMA3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(special: list[str], bos: str | None = None) -> Tokenizer:
    """GPT-2's kind, as Llama 3 and SmolLM have it; the post-processor adds `bos`."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens(special)
    # Added, but text: one outside of the byte alphabet, one whose characters could be bytes.
    tokenizer.add_tokens(["漢字", "ùù"])
    if bos is not None:
        template = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), template]  # as in Llama 3's file
        )
    return tokenizer


def sentence_piece() -> Tokenizer:
    """Llama 2's kind: a blank before every text, which the decoder takes off; bytes as `<0xE2>`."""
    control = ["<unk>", "<s>", "</s>"]
    tokens = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghilmnoprstvxyTA.é"]
    merges = [("▁", "T"), ("▁", "a"), ("o", "m"), ("▁T", "om"), ("▁", "▁")]
    tokens += [left + right for left, right in merges]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    tokenizer = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, **config: Any) -> Path:
    """`folder` with tokenizer.json, and tokenizer_config.json unless there is nothing in it."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
