"""A plot of the loss: lines of text for a terminal, or an SVG file.

Knows numbers only: pairs of a step and a loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Points = Sequence[tuple[int, float]]

_WIDTH, _HEIGHT = 60, 10  # characters of the text
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_SVG = (720, 320)  # pixels
_EDGE = 48


def text_plot(points: Points) -> str:
    """Columns of blocks, the axis on the left; "" for fewer than two points."""
    if len(points) < 2:
        return ""
    columns = _columns([loss for _, loss in points], _WIDTH)
    least, most = min(columns), max(columns)
    span = (most - least) or 1.0
    levels = [round((loss - least) / span * (8 * _HEIGHT - 1)) + 1 for loss in columns]
    lines = []
    for row in range(_HEIGHT, 0, -1):
        label = {_HEIGHT: f"{most:8.3f}", 1: f"{least:8.3f}"}.get(row, " " * 8)
        cells = (_EIGHTHS[max(0, min(8, level - 8 * (row - 1)))] for level in levels)
        lines.append(f"{label} │{''.join(cells)}")
    first, last = points[0][0], points[-1][0]
    lines.append(" " * 8 + " └" + "─" * len(columns))
    lines.append(f"{'step':>8}  {first}{last:>{max(1, len(columns) - len(str(first)))}}")
    return "\n".join(lines)


def svg_plot(points: Points, title: str) -> str:
    """A line over steps, with both axes."""
    width, height = _SVG
    steps, losses = [step for step, _ in points], [loss for _, loss in points]
    least, most = min(losses), max(losses)
    wide, high = max(steps[-1] - steps[0], 1), (most - least) or 1.0

    def place(step: int, loss: float) -> str:
        x = _EDGE + (step - steps[0]) / wide * (width - 2 * _EDGE)
        y = _EDGE + (most - loss) / high * (height - 2 * _EDGE)
        return f"{x:.1f},{y:.1f}"

    path = " ".join(place(step, loss) for step, loss in points)
    base, right = height - _EDGE, width - _EDGE
    label = '<text font-family="sans-serif" font-size="12"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}" fill="white"/>'
        f'<path d="M{_EDGE},{_EDGE}V{base}H{right}" fill="none" stroke="gray"/>'
        f'<polyline points="{path}" fill="none" stroke="#c2410c" stroke-width="2"/>'
        f'{label} x="{_EDGE}" y="24">{_escaped(title)}</text>'
        f'{label} x="4" y="{_EDGE + 4}">{most:.3f}</text>'
        f'{label} x="4" y="{base + 4}">{least:.3f}</text>'
        f'{label} x="{_EDGE}" y="{height - 24}">{steps[0]}</text>'
        f'{label} x="{right}" y="{height - 24}" text-anchor="end">step {steps[-1]}</text>'
        "</svg>\n"
    )


def _columns(losses: Sequence[float], count: int) -> list[float]:
    """The means of as many equal parts, or the losses where they are fewer."""
    size = max(1, math.ceil(len(losses) / count))
    parts = (losses[at : at + size] for at in range(0, len(losses), size))
    return [sum(part) / len(part) for part in parts]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
