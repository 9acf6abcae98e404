"""Bar charts of the measurements as SVG: for each unit of a table one panel, hearth and the other
side in pairs of bars."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from docs.generator.measurements import Row, Table
from docs.generator.palette import FONT, SCHEMES, Palette

_WIDTH, _LABELS, _RIGHT = 760, 250, 90
_BAR, _GAP, _HEAD, _LEGEND = 13, 16, 30, 30


def pictures(tables: Iterable[Table]) -> dict[str, str]:
    """The content of each picture by file name."""
    return {
        f"plot-{table.id}-{scheme}.svg": _picture(table, palette)
        for table in tables
        if table.plot
        for scheme, palette in SCHEMES.items()
    }


def _picture(table: Table, palette: Palette) -> str:
    units = dict.fromkeys(row.unit for row in table.rows if row.other is not None)
    panels, y = [], _LEGEND
    for unit in units:
        rows = [row for row in table.rows if row.unit == unit and row.other is not None]
        panels.append(_panel(rows, unit, y, palette))
        y += _HEAD + len(rows) * (2 * _BAR + _GAP)
    body = "\n".join([_legend(palette), *panels])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 6}" \
width="{_WIDTH}" height="{y + 6}" role="img" font-family="{FONT}" font-size="13">
<title>{escape(table.title)}</title>
<rect width="100%" height="100%" rx="8" fill="{palette.paper}"/>
{body}
</svg>
"""


def _legend(palette: Palette) -> str:
    parts = []
    for x, colour, name in (
        (_LABELS, palette.accent, "hearth"),
        (_LABELS + 90, palette.other, "the other side"),
    ):
        parts.append(f'<rect x="{x}" y="14" width="11" height="11" rx="2" fill="{colour}"/>')
        parts.append(_text(x + 17, 24, name, palette.ink))
    return "\n".join(parts)


def _panel(rows: Iterable[Row], unit: str, top: int, palette: Palette) -> str:
    drawn = list(rows)
    best = max(max(row.value or 0, row.other or 0) for row in drawn)
    scale = (_WIDTH - _LABELS - _RIGHT) / best
    names = {"s": "seconds", "ms": "milliseconds"}
    words = f"{names[unit]}, shorter is better" if unit in names else f"{unit}, longer is better"
    parts = [_text(_LABELS, top + 20, words, palette.faint)]
    for index, row in enumerate(drawn):
        y = top + _HEAD + index * (2 * _BAR + _GAP)
        parts.append(_text(_LABELS - 12, y + 11, row.what, palette.ink, "end"))
        parts.append(_text(_LABELS - 12, y + 26, row.against, palette.faint, "end"))
        sides = ((row.value or 0.0, palette.accent), (row.other or 0.0, palette.other))
        for offset, (value, colour) in enumerate(sides):
            parts.append(_bar(y + offset * (_BAR + 2), value, scale, colour, palette))
    return "\n".join(parts)


def _bar(y: int, value: float, scale: float, colour: str, palette: Palette) -> str:
    width = max(1.0, value * scale)
    bar = (
        f'<rect x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{colour}"/>'
    )
    return f"{bar}\n{_text(_LABELS + width + 6, y + 11, f'{value:,}', palette.ink)}"


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
