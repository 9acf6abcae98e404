"""The simulation of routing as a picture and a table: docs/data/routing.json, which
`python -m tests.benchmarks.cluster_simulation` writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from docs.generator.palette import FONT, SCHEMES, Palette

_DATA = Path(__file__).parents[1] / "data" / "routing.json"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 340, 60, 120, 40, 50
_DASHES = {"hearth": "", "prefix only": "2 4", "least loaded": "8 4", "round robin": "1 3"}
_SHOWN = (1, 8, 64)


def pictures() -> dict[str, str]:
    """The content of each picture by file name."""
    return {f"plot-routing-{scheme}.svg": _picture(palette) for scheme, palette in SCHEMES.items()}


def table() -> str:
    """Some of the outcomes."""
    lines = ["| replicas | clients | policy | TTFT p50 | TTFT p95 | cached | busiest / mean |",
             "| ---: | ---: | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for row in _rows():
        if row["replicas"] in _SHOWN:
            lines.append(
                f"| {row['replicas']} | {row['clients']:,} | {row['policy']} |"
                f" {row['ttft_p50_s']:.1f} s | {row['ttft_p95_s']:.1f} s | {row['cached']:.0%} |"
                f" {row['imbalance']:.2f} |"
            )
    return "\n".join(lines)


def _rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_DATA.read_text("utf-8"))
    return found


def _x(replicas: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log2(replicas) / 6


def _y(seconds: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * math.log10(max(seconds, 1)) / 3.1


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" text-anchor="{anchor}">{text}</text>'


def _picture(palette: Palette) -> str:
    parts = [_text(_LEFT, 22, "Seconds to the first token, 95th percentile", palette.ink)]
    for seconds in (1, 10, 100, 1000):
        y = _y(seconds)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="{palette.line}" fill="none"/>'
        )
        parts.append(_text(_LEFT - 8, y + 4, f"{seconds:,}", palette.faint, "end"))
    for replicas in (1, 2, 4, 8, 16, 32, 64):
        parts.append(
            _text(_x(replicas), _HEIGHT - _BOTTOM + 20, str(replicas), palette.faint, "middle")
        )
    parts.append(_text(_LEFT, _HEIGHT - 10, "replicas, 156 clients for each", palette.faint))
    for policy, dashes in _DASHES.items():
        rows = [row for row in _rows() if row["policy"] == policy]
        points = [(_x(row["replicas"]), _y(row["ttft_p95_s"])) for row in rows]
        colour = palette.accent if policy == "hearth" else palette.other
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"'
            f' stroke-dasharray="{dashes}"/>'
        )
        x, y = points[-1]
        shift = 14 if policy == "least loaded" else 2
        parts.append(_text(x + 8, y + shift, policy, palette.ink))
    body = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" \
width="{_WIDTH}" height="{_HEIGHT}" role="img" font-family="{FONT}" font-size="13">
<title>Routing policies from 1 to 64 replicas</title>
<rect width="100%" height="100%" rx="8" fill="{palette.paper}"/>
{body}
</svg>
"""
