"""Conversion of Hugging Face checkpoints and PEFT adapters to GGUF."""
