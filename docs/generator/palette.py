"""The colours of pictures, for pages with a light and with a dark ground."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Palette:
    """paper: the ground, panel: of boxes, inset: of boxes in boxes; line: of their borders."""

    paper: str
    panel: str
    inset: str
    line: str
    ink: str
    faint: str
    accent: str
    other: str


SCHEMES = {
    "light": Palette(
        paper="#ffffff",
        panel="#f6f5f2",
        inset="#ffffff",
        line="#cfcac0",
        ink="#24211d",
        faint="#6b645a",
        accent="#c2410c",
        other="#8b95a5",
    ),
    "dark": Palette(
        paper="#16181c",
        panel="#20242a",
        inset="#2a2f37",
        line="#454c57",
        ink="#eceae6",
        faint="#a7adb8",
        accent="#fb923c",
        other="#6c7787",
    ),
}
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
