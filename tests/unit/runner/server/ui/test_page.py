"""runner.server.ui.page: what the built page holds, and who gets it."""

from __future__ import annotations

import gzip
import re
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.server.http_request import HttpRequest
from runner.server.services import Services
from runner.server.ui.page import POLICY, page_file, wants_page

BUILT = Path(str(resources.files("runner.server.ui").joinpath("built")))
NAMES = sorted(path.name for path in BUILT.iterdir())
MAX_PACKED_BYTES = 350_000


def asking(accept: str | None) -> HttpRequest:
    """A request that accepts something."""
    headers = [] if accept is None else [(b"accept", accept.encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    unused, services = cast("Any", None), SimpleNamespace(bodies=None)
    return HttpRequest(scope, unused, unused, cast("Services", services))


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html;q=0.5, text/plain", True),
        ("text/html;q=0, text/plain", False),
        ("*/*", False),
        ("application/json", False),
        ("", False),
        (None, False),
    ],
)
def test_only_who_names_html_gets_the_page(accept: str | None, expected: bool) -> None:
    assert wants_page(asking(accept)) is expected


def test_the_page_names_only_files_that_are_there_and_relative_to_it() -> None:
    page = page_file("index.html").content.decode()
    named = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(named) >= 3
    assert {name.removeprefix("ui/") for name in named} <= set(NAMES)


def test_the_page_has_no_script_or_style_in_it() -> None:
    page = page_file("index.html").content.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\s(?:style|on\w+)=", page) == []


def test_scripts_use_nothing_that_makes_markup_or_code_of_text() -> None:
    for name in NAMES:
        if name.endswith(".js"):
            script = page_file(name).content.decode()
            found = re.findall(
                r"\beval\(|new Function\b|document\.write|insertAdjacentHTML", script
            )
            assert found == [], name


def test_the_policy_allows_nothing_inline_and_nobody_else() -> None:
    assert POLICY.startswith("default-src 'self'; ")
    assert re.findall(r"unsafe|https?:|\*", POLICY) == []


def test_a_file_is_sent_packed_as_it_is() -> None:
    for name in NAMES:
        file = page_file(name)
        assert gzip.decompress(file.packed) == file.content == (BUILT / name).read_bytes()


def test_all_of_the_page_is_no_larger_than_it_may_be() -> None:
    assert sum(len(page_file(name).packed) for name in NAMES) <= MAX_PACKED_BYTES


def test_the_lock_file_names_no_place_to_fetch_from() -> None:
    lock = BUILT.parent / "package-lock.json"
    assert "://" not in re.sub(r'"url": "[^"]*"', "", lock.read_text())
