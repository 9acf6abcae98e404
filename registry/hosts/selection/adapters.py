"""Which files of a repository make a LoRA adapter of PEFT, and the model that it says it is for.

Owns the reading of names. Sends no requests; GGUF adapters are chosen like models, see variants.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from registry.errors import RemoteRefused
from registry.hosts.selection.variants import RepositoryFile, Variant

ADAPTER = "adapter"
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_MAX_CONFIG_BYTES = 4 * 1024 * 1024
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}", re.ASCII)
_TAG = "base_model:adapter:"
# What adapters that were trained on four bits name; the full checkpoint has the rest of the name.
_FOUR_BITS = re.compile(r"(-unsloth)?-bnb-4bit$", re.IGNORECASE)
_HUB = ("huggingface.co", "hf.co")


def adapter_of(repo: str, entries: Iterable[RepositoryFile]) -> Variant | None:
    """The files of the adapter at the top of a repository, its config first; None where there is
    none in safetensors. Raises RemoteRefused for a config of no sensible size."""
    files = {entry.path: entry for entry in entries}
    if CONFIG not in files or WEIGHTS not in files:
        return None
    size = files[CONFIG].size_bytes
    if size > _MAX_CONFIG_BYTES:
        raise RemoteRefused(
            f"{CONFIG} of {repo} has {size} bytes, at most {_MAX_CONFIG_BYTES} are allowed"
        )
    return Variant(ADAPTER, (files[CONFIG], files[WEIGHTS]))


def base_in_config(values: Mapping[str, Any]) -> str | None:
    """The repository that adapter_config.json names; None where it names a folder or nothing."""
    return _repository(values.get("base_model_name_or_path"))


def base_in_tags(tags: Iterable[str]) -> str | None:
    """The repository that the Hub's tags of a repository name."""
    named = [tag.removeprefix(_TAG) for tag in tags if tag.startswith(_TAG)]
    return _repository(next(iter(named), None))


def base_in_header(metadata: Mapping[str, Any]) -> str | None:
    """The repository that a GGUF adapter names, as llama.cpp's convert_lora_to_gguf.py writes
    it."""
    url = metadata.get("general.base_model.0.repo_url")
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return _repository(parts.path.strip("/")) if parts.netloc in _HUB else None


def _repository(value: Any) -> str | None:
    if not isinstance(value, str) or _REPO.fullmatch(value) is None:
        return None
    return _FOUR_BITS.sub("", value)
