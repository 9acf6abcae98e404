"""Mistral: MistralForCausalLM, a Llama that may see a window of the last tokens only."""

from __future__ import annotations

from runner.backends.torch.config import ModelConfig
from runner.backends.torch.decoder import Decoder
from runner.backends.torch.models.llama import llama
from runner.backends.torch.parts import window_of
from runner.backends.torch.weights import Weights

_WINDOW = 4096


def build(config: ModelConfig, weights: Weights) -> Decoder:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    return llama(config, weights, window_of(config.values, _WINDOW))
