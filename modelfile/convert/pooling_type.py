"""How an embedder combines vectors into one: modules.json of sentence-transformers.

Modules that are not supported are refused, because the vectors would differ without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.convert.config import Config, read_json
from modelfile.convert.files import read_list
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan
from modelfile.errors import ConvertError
from registry.errors import shown

_MEAN: Final = 1
_RANK: Final = 4
_KINDS: Final = {  # llama.cpp's enum llama_pooling_type
    "mean": _MEAN,
    "cls": 2,
    "lasttoken": 3,
}
_OLD_MODE: Final = "pooling_mode_"
_OLD_NAMES: Final = {"mean_tokens": "mean", "cls_token": "cls"}
_MODULES: Final = "modules.json"
_USUAL: Final = "1_Pooling"
_HARMLESS: Final = ("Transformer", "Normalize", "Dropout")  # vectors are normalised when asked for


def pooling_metadata(plan: ConversionPlan, files: Mapping[str, Path]) -> tuple[MetadataValue, ...]:
    """The key of pooling: what the checkpoint says, the mean for an embedder that does not say,
    as sentence-transformers does; a reranker ranks. Nothing for other models. Raises
    ConvertError, OSError."""
    kind = _MEAN if plan.embeds else None
    if plan.ranks:
        kind = _RANK
    else:
        folder = _pooling_folder(files)
        name = f"{folder}/config.json"
        if name in files:
            kind = _pooling_type(Config(read_json(files, name), name))
    if kind is None:
        return ()
    return (MetadataValue(f"{plan.architecture}.pooling_type", "u32", kind),)


def _pooling_folder(files: Mapping[str, Path]) -> str:
    """Where the pooling is described. Raises ConvertError for a module that is not supported."""
    folder = _USUAL
    for module in read_list(files, _MODULES):
        kind, path = _module(module)
        if kind == "Pooling":
            folder = path
        elif kind not in _HARMLESS:
            raise _unsupported(kind, path)
    for name in files:
        path, separator, _ = name.partition("/")
        if separator and path.endswith("_Dense"):
            raise _unsupported("Dense", path)
    return folder


def _module(given: Any) -> tuple[str, str]:
    """The class of a module and its folder. Raises ConvertError."""
    module = given if isinstance(given, dict) else {}
    kind, path = module.get("type"), module.get("path")
    if not isinstance(kind, str) or not isinstance(path, str):
        raise ConvertError(f"{_MODULES}: expected objects with type and path")
    return kind.rpartition(".")[2], path.rstrip("/")


def _unsupported(kind: str, path: str) -> ConvertError:
    return ConvertError(
        f"{_MODULES}: the module {shown(path or kind)} ({shown(kind)}) changes the vectors and is"
        " not supported; use a GGUF file of this model that has it, or another model"
    )


def _pooling_type(config: Config) -> int:
    """Raises ConvertError for a kind that is not supported, and for several."""
    given = config.values.get("pooling_mode")
    named = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    modes = [mode for mode in named if isinstance(mode, str)]
    for key, value in config.values.items():
        if key.startswith(_OLD_MODE) and value is True:
            old = key.removeprefix(_OLD_MODE)
            modes.append(_OLD_NAMES.get(old, old))
    if len(modes) != 1 or modes[0] not in _KINDS:
        found = ", ".join(map(shown, modes)) or "none"
        raise ConvertError(
            f"{config.file}: only mean, cls and lasttoken pooling are supported, one of them (got"
            f" {found})"
        )
    return _KINDS[modes[0]]
