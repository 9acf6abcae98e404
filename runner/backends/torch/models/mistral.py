"""Mistral: MistralForCausalLM, a Llama that may see a window of the last tokens only."""

from __future__ import annotations

from runner.backends.torch.config import ModelConfig, read_window
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.loading.weights import WeightLoader
from runner.backends.torch.models.llama import llama

_WINDOW = 4096


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    return llama(config, weights, read_window(config.values, _WINDOW))
