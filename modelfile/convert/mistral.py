"""Mistral and Ministral: MistralForCausalLM, which llama.cpp runs as a Llama."""

from __future__ import annotations

from modelfile.convert import llama
from modelfile.convert.config import Config
from modelfile.convert.plan import Plan


def plan(config: Config) -> Plan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    return llama.plan(config)
