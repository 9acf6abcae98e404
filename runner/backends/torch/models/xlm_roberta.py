"""XLM-RoBERTa: XLMRobertaModel, a RoBERTa of many languages."""

from __future__ import annotations

from runner.backends.torch.models.roberta import build

__all__ = ["build"]
