"""How an embedder makes one vector of many: modules.json of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from modelfile.convert.config import Config, read_json
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan
from modelfile.errors import ConvertError

_MEAN: Final = 1
_RANK: Final = 4
_KINDS: Final = {  # llama.cpp's enum llama_pooling_type
    "mean": _MEAN,
    "cls": 2,
    "lasttoken": 3,
    "pooling_mode_mean_tokens": _MEAN,
    "pooling_mode_cls_token": 2,
    "pooling_mode_lasttoken": 3,
}
_USUAL = "1_Pooling/config.json"


def pooling_metadata(plan: ConversionPlan, files: Mapping[str, Path]) -> tuple[MetadataValue, ...]:
    """The key of pooling: what the checkpoint says, the mean for an embedder that does not say,
    as sentence-transformers does; a reranker ranks. Nothing for other models. Raises
    ConvertError, OSError."""
    kind = _MEAN if plan.embeds else None
    if plan.ranks:
        kind = _RANK
    elif _USUAL in files:
        kind = _pooling_type(Config(read_json(files, _USUAL), _USUAL))
    if kind is None:
        return ()
    return (MetadataValue(f"{plan.architecture}.pooling_type", "u32", kind),)


def _pooling_type(config: Config) -> int:
    for key, kind in _KINDS.items():
        if config.values.get(key) is True or config.values.get("pooling_mode") == key:
            return kind
    raise ConvertError(f"{config.file}: only mean, cls and lasttoken pooling are supported")
