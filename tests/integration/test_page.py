"""The page of a real daemon: who gets it, and with which headers."""

from __future__ import annotations

import gzip
import re

import httpx
import pytest

from tests.conftest import StartDaemon

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
LIVENESS = "hearth is running"


def script_of(page: str) -> str:
    """The path of its script."""
    (found,) = re.findall(r'<script type="module" src="([^"]+)"', page)
    return f"/{found}"


def test_a_browser_gets_the_page_and_a_program_the_text(client: httpx.Client) -> None:
    for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}):
        answer = client.get("/", headers=headers)
        assert (answer.text, answer.headers["content-type"]) == (
            LIVENESS,
            "text/plain; charset=utf-8",
        )
    page = client.get("/", headers=BROWSER)
    assert page.text.startswith("<!doctype html>")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["vary"] == "Accept, Accept-Encoding"
    assert client.head("/", headers=BROWSER).status_code == 200


def test_all_of_the_page_comes_under_its_policy_and_unseen_by_frames(client: httpx.Client) -> None:
    page = client.get("/", headers=BROWSER)
    for answer in (page, client.get(script_of(page.text))):
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_page_is_asked_for_anew_and_its_files_are_kept(client: httpx.Client) -> None:
    page = client.get("/", headers=BROWSER)
    assert page.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={**BROWSER, "if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    script = client.get(script_of(page.text))
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"


def test_files_are_packed_for_who_takes_that(client: httpx.Client) -> None:
    path = script_of(client.get("/", headers=BROWSER).text)
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    with client.stream("GET", path, headers={"accept-encoding": "br, gzip"}) as packed:
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(packed.iter_raw())) == plain.content


@pytest.mark.parametrize(
    "name",
    ["none-AAAAAAAA.js", "index.html", "..%2fpage.py", "..%2fsrc%2fmain.tsx", "%00.js", "page.py"],
)
def test_nothing_else_is_served_as_a_file_of_the_page(name: str, client: httpx.Client) -> None:
    assert client.get(f"/ui/{name}").status_code == 404


def test_a_foreign_site_gets_neither_the_page_nor_its_files(client: httpx.Client) -> None:
    path = script_of(client.get("/", headers=BROWSER).text)
    for headers in (
        {"origin": "https://visited.example"},
        {"sec-fetch-site": "cross-site"},
        {"host": "visited.example"},
    ):
        assert client.get("/", headers={**BROWSER, **headers}).status_code == 403
        assert client.get(path, headers=headers).status_code == 403


def test_the_page_needs_no_key_and_what_it_asks_for_does(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        key = client.post("/api/keys", json={"name": "first", "scopes": ["admin"]}).json()["key"]
        page = client.get("/", headers=BROWSER)
        assert page.status_code == 200
        assert client.get(script_of(page.text)).status_code == 200
        assert client.get("/api/tags").status_code == 401
        given = {"authorization": f"Bearer {key}"}
        assert client.get("/api/tags", headers=given).status_code == 200
