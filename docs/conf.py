"""Sphinx's configuration: `make docs` builds the site from the Markdown pages of this folder."""

from __future__ import annotations

import re
from typing import Any

project = "hearth"
author = copyright = "The hearth developers"
extensions = ["myst_parser"]
exclude_patterns = ["generator"]
myst_heading_anchors = 3
nitpicky = True
suppress_warnings = ["myst.header"]  # CHANGELOG.md repeats its headings for each version

html_theme = "furo"
html_title = "hearth"
html_show_sphinx = html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#c2410c", "color-brand-content": "#c2410c"},
    "dark_css_variables": {"color-brand-primary": "#fb923c", "color-brand-content": "#fb923c"},
}
pygments_dark_style = "github-dark"

_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img alt="([^"]+)" src="([^"]+)">\s*</picture>'
)


def setup(app: Any) -> None:
    """Let the theme's own switch choose between the light and the dark picture."""
    app.connect("source-read", _switch_pictures)


def _switch_pictures(_app: Any, _name: str, source: list[str]) -> None:
    source[0] = _PICTURE.sub(_images, source[0])


def _images(match: re.Match[str]) -> str:
    dark, alt, light = match.groups()
    return "\n\n".join(
        f"```{{image}} {path}\n:alt: {alt}\n:class: only-{scheme}\n```"
        for scheme, path in (("light", light), ("dark", dark))
    )
