"""RoBERTa: RobertaModel, a BERT that counts positions from behind that of padding."""

from __future__ import annotations

from runner.backends.torch.config import ModelConfig
from runner.backends.torch.layers.encoder import Encoder
from runner.backends.torch.loading.weights import WeightLoader
from runner.backends.torch.models.bert import encoder


def build(config: ModelConfig, weights: WeightLoader) -> Encoder:
    """The encoder of config. Raises ConvertError, ModelLoadFailed."""
    padding = config.values.values.get("pad_token_id")
    skipped = 1 if padding == 0 else config.values.integer("pad_token_id", 1) + 1
    return encoder(config, weights, "roberta.", skipped)
