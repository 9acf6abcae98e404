"""The picture of the architecture: docs/data/architecture.svg in the colours of each scheme."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from docs.generator.palette import FONT, SCHEMES

_SOURCE = Path(__file__).parents[1] / "data" / "architecture.svg"


def pictures() -> dict[str, str]:
    """The content of each picture by file name."""
    source = _SOURCE.read_text(encoding="utf-8")
    return {
        f"architecture-{scheme}.svg": _filled(source, {**asdict(palette), "font": FONT})
        for scheme, palette in SCHEMES.items()
    }


def _filled(source: str, values: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: values[match[1]], source)
