"""GGUF files: names and values against those of safetensors checkpoints, metadata, tokenizer, and tensors."""
