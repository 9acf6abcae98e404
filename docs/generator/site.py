"""Checks a built site: python -m docs.generator.site FOLDER.

Every link and anchor within it must exist, and no page may load anything from another host. Links
that a reader may follow elsewhere are not fetched.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("source", "srcset"),
           ("iframe", "src"), ("object", "data"), ("video", "src"), ("audio", "src")}  # fmt: skip
_CSS_URL = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class _Page(HTMLParser):
    """The anchors of a page, where it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif (tag, name) in _LOADED and value:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


def faults(folder: Path) -> Iterator[str]:
    """What is wrong with the site in folder, one line for each fault."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    for path, page in pages.items():
        name = path.relative_to(folder)
        yield from (f"{name}: loads {url}" for url in page.loaded if _is_elsewhere(url))
        for link in [*page.links, *page.loaded]:
            if not _is_elsewhere(link) and not _leads_somewhere(path, link, pages):
                yield f"{name}: {link} leads nowhere"
    for path in folder.rglob("*.css"):
        for url in _CSS_URL.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(folder)}: loads {url}"


def _is_elsewhere(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme not in ("", "file")


def _leads_somewhere(path: Path, link: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or target not in pages or anchor in pages[target].anchors


def main() -> int:
    """Print the faults; 1 when there are any."""
    folder = Path(sys.argv[1]).resolve()
    found = sorted(faults(folder))
    print("\n".join(found) or f"{folder}: all links lead somewhere, nothing comes from elsewhere")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
