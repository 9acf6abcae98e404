"""general.* of a GGUF file: what the model is called, how large it is, under which license."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Final

import gguf

from modelfile.convert.config import Config
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan
from registry.atomic import read_regular
from registry.errors import BlobDamaged
from registry.formats.gguf.types import FILE_NUMBERS

_QUANTIZATION_VERSION: Final = 2
_README_BYTES: Final = 64 << 10
_LICENSE: Final = re.compile(r"^license: *[\"']?([A-Za-z0-9][\w.+-]{0,63})[\"']? *$", re.MULTILINE)


def general_metadata(
    plan: ConversionPlan, config: Config, files: Mapping[str, Path], type: str
) -> tuple[MetadataValue, ...]:
    """The values. Raises OSError."""
    values = [
        MetadataValue("general.architecture", "string", plan.architecture),
        MetadataValue("general.type", "string", "model"),
        MetadataValue("general.file_type", "u32", FILE_NUMBERS[type]),
        MetadataValue("general.quantization_version", "u32", _QUANTIZATION_VERSION),
        MetadataValue("general.size_label", "string", _size_label(plan)),
    ]
    for key, text in (("name", _name(config)), ("license", _license(config, files))):
        if text is not None:
            values.append(MetadataValue(f"general.{key}", "string", text))
    return tuple(values)


def _size_label(plan: ConversionPlan) -> str:
    """ "8B" or "8x7B"."""
    total = sum(prod(weight.target_shape) for weight in plan.weights)
    if plan.expert_count is None:
        return str(gguf.size_label(total, 0, 0, 0))
    experts = sum(prod(weight.target_shape) for weight in plan.weights if weight.sources)
    return str(
        gguf.size_label(total, total - experts, experts // plan.expert_count, plan.expert_count)
    )


def _name(config: Config) -> str | None:
    """The last part of the name that the checkpoint was saved under."""
    name = config.values.get("_name_or_path")
    if not isinstance(name, str):
        return None
    short = name.rstrip("/").rpartition("/")[2].strip()
    return short[:128] if short.isprintable() and short.strip(".") else None


def _license(config: Config, files: Mapping[str, Path]) -> str | None:
    """The license that config.json or the head of README.md names."""
    license = config.values.get("license")
    if isinstance(license, str) and license.isprintable() and 0 < len(license) <= 64:
        return license
    if "README.md" not in files:
        return None
    try:
        text = read_regular(files["README.md"], _README_BYTES).decode("utf-8", "replace")
    except BlobDamaged:
        return None
    if not text.startswith("---"):
        return None
    found = _LICENSE.search(text[3:].partition("\n---")[0])
    return found[1] if found else None
