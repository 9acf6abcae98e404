"""The job that reads the text of a document and cuts it into chunks, in a process of its own.

Job: {"source": path, "name": of the document, "chunk_chars", "overlap_chars", "target": path};
done: {"chunks"}. The target has a chunk on each line, as JSON.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runner.errors import InvalidRequest, Unsupported
from runner.jobs.job import Report

MAX_BYTES: Final = 32 << 20
_HTML: Final = (".html", ".htm", ".xhtml")
_OTHERS: Final = {b"%PDF-": "PDF", b"PK\x03\x04": "Office or ZIP", b"\xd0\xcf\x11\xe0": "Office"}
_BREAKS: Final = ("\n\n", "\n", ". ", " ")  # the best place to cut first
_SILENT: Final = ("script", "style", "template", "noscript")
_TAG: Final = re.compile(r"<!--|</?([a-z][a-z0-9]*)|<[!?]")
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}  # of one length
_BLOCKS: Final = frozenset(
    (
        *("p", "div", "br", "li", "tr", "section", "article", "pre", "blockquote", "title"),
        *("h1", "h2", "h3", "h4", "h5", "h6"),
    )
)


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Read and cut. Raises InvalidRequest, Unsupported, OSError."""
    text = text_of(Path(job["source"]), str(job["name"]))
    count = 0
    with Path(job["target"]).open("w", encoding="utf-8") as target:
        for chunk in chunks_of(text, int(job["chunk_chars"]), int(job["overlap_chars"])):
            target.write(json.dumps(chunk) + "\n")
            count += 1
    report("extracting", count, count)
    return {"chunks": count}


def text_of(path: Path, name: str) -> str:
    """The text of a document. Raises InvalidRequest for what is no text, Unsupported for formats
    that are not read."""
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"the file is longer than {MAX_BYTES >> 20} MiB: split it")
    for start, kind in _OTHERS.items():
        if data.startswith(start):
            raise Unsupported(f"{kind} files are not read: convert the file to text or Markdown")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the file is not text in UTF-8 (byte {error.start}): convert it"
        ) from None
    if "\x00" in text:
        raise InvalidRequest("the file holds zero bytes, so it is not text")
    if name.lower().endswith(_HTML):
        return _text_of_page(text)
    return text


def chunks_of(text: str, size: int, overlap: int) -> Iterator[str]:
    """Pieces of up to size characters, cut where a paragraph, a line, a sentence or a word ends;
    each begins with the last overlap characters of the one before."""
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text):
            end = _cut(text, start + size - size // 4, end)
        chunk = text[start:end].strip()
        if chunk:
            yield chunk
        if end == len(text):
            return
        start = max(end - overlap, start + 1)


def _cut(text: str, earliest: int, latest: int) -> int:
    for mark in _BREAKS:
        at = text.rfind(mark, earliest, latest)
        if at >= 0:
            return at + len(mark)
    return latest


def _text_of_page(page: str) -> str:
    """What a page shows, without the white space that none shows. Each search goes on where the
    last one ended: html.parser takes minutes for some pages of a megabyte."""
    parts, at, lower = [], 0, page.translate(_LOWER)
    while at < len(page):
        start = page.find("<", at)
        end = len(page) if start < 0 else start
        parts.append(html.unescape(page[at:end]).replace("\n", " "))
        tag = _TAG.match(lower, end)
        if tag is None:
            parts.append(page[end : end + 1])
            at = end + 1
            continue
        if tag[0] == "<!--":
            at = _after(page, "-->", tag.end())
            continue
        at = _after(page, ">", tag.end())
        if tag[1] in _BLOCKS:
            parts.append("\n")
        if tag[1] in _SILENT and not tag[0].startswith("</"):
            at = _after(lower, f"</{tag[1]}", at)
            at = _after(page, ">", at)
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)


def _after(text: str, mark: str, at: int) -> int:
    """Behind the next mark; the end of text where there is none."""
    found = text.find(mark, at)
    return len(text) if found < 0 else found + len(mark)
