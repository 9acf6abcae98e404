"""Tokenizers of Hugging Face folders as metadata of GGUF files."""

from modelfile.convert.vocabulary.reader import read_vocabulary

__all__ = ["read_vocabulary"]
