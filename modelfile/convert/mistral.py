"""Mistral and Ministral: MistralForCausalLM, which llama.cpp runs as a Llama."""

from __future__ import annotations

from modelfile.convert import llama
from modelfile.convert.config import Config
from modelfile.convert.plan import ConversionPlan


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    return llama.plan(config)
