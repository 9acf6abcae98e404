from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.origins import host_name, is_local_origin, origin_pattern


@pytest.mark.parametrize(
    ("pattern", "origins"),
    [
        ("https://app.example", ["https://app.example"]),
        ("https://app.example/", ["https://app.example"]),
        ("http://app.example:80", ["http://app.example"]),
        ("HTTPS://App.Example:443", ["https://app.example"]),
        ("http://app.example:8080", ["http://app.example:8080"]),
        ("http://[fd00::1]:3000", ["http://[fd00::1]:3000"]),
        ("http://app.example:*", ["http://app.example:1", "http://app.example:65535"]),
        ("https://*.app.example", ["https://a.app.example", "https://a.b.app.example"]),
        ("https://*.app.example:8443", ["https://a.app.example:8443"]),
        ("https://pr-*.app.example", ["https://pr-7.app.example"]),
        ("*.app.example", ["https://a.app.example", "http://a.app.example"]),
        ("*://app.example", ["https://app.example", "http://app.example"]),
        ("http://192.168.*", ["http://192.168.1.5", "http://192.168.1.5:3000"]),
        ("http://192.168.1.*:3000", ["http://192.168.1.5:3000"]),
        ("http://localhost*", ["http://localhost", "http://localhost:3000", "http://localhost2"]),
        ("http://*", ["http://any.example:1"]),
        ("chrome-extension://*", ["chrome-extension://abc"]),
        ("moz-extension://1-2", ["moz-extension://1-2"]),
        ("capacitor://", ["capacitor://"]),
        ("*", ["https://any.example", "chrome-extension://abc"]),
    ],
)
def test_a_star_stands_for_a_part_of_an_origin(pattern: str, origins: list[str]) -> None:
    found = origin_pattern(pattern)
    assert [origin for origin in origins if not found.fullmatch(origin)] == []


@pytest.mark.parametrize(
    ("pattern", "origin"),
    [
        ("https://app.example", "https://app.example.evil"),
        ("https://app.example", "https://appxexample"),
        ("https://app.example", "http://app.example"),
        ("https://*.app.example", "https://app.example"),
        ("https://*.app.example", "https://evilapp.example"),
        ("https://*.app.example", "https://evil.example/.app.example"),
        ("https://*.app.example", "https://evil@a.app.example"),
        ("http://app.example:*", "http://app.example"),
        ("http://app.example:*", "http://app.example:1.evil.example"),
        ("http://192.168.*", "http://192.168.evil.example"),
        ("http://192.168.*", "http://192.168.com"),
        ("http://192.168.1.*:3000", "http://192.168.1.com:3000"),
        ("http://localhost*", "http://localhost.evil.example"),
        ("http://dev-*:3000", "http://dev-1.evil.example:3000"),
        ("*", "null"),
    ],
)
def test_a_star_lets_no_name_in_that_anybody_can_register(pattern: str, origin: str) -> None:
    assert origin_pattern(pattern).fullmatch(origin) is None


@pytest.mark.parametrize(
    "pattern",
    [
        *("app.example", "localhost:3000", "https://", "https://a/b", "https://a?b", "https://u@a"),
        *("https://*/x", "http://a b", "http://a:99999", "http://a:b", "https://*.*", "**", "null"),
        *("https:/a", "://a", "https://a..b", "http://app.*", "http://*:x", "https://[::1", ""),
    ],
)  # fmt: skip
def test_a_pattern_that_matches_nothing_or_too_much_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"origin|domain|more than one"):
        origin_pattern(pattern)


@given(st.text(alphabet="*htps:/.@[]:19ae-", max_size=24), st.text(max_size=12))
def test_no_pattern_lets_null_in_or_fails(pattern: str, origin: str) -> None:
    try:
        found = origin_pattern(pattern)
    except ValueError:
        return
    assert found.fullmatch("null") is None
    found.fullmatch(origin)


@given(st.text(alphabet="apfile:/turicvsodwb-h.019@*", max_size=30))
def test_an_origin_of_this_machine_is_loopback_or_an_application(origin: str) -> None:
    if is_local_origin(origin):
        scheme, _, host = origin.partition("://")
        assert scheme in ("app", "file", "tauri", "vscode-webview", "vscode-file", "http", "https")
        assert not set(host) & set("/@*?#")


def test_the_name_of_a_host_is_no_more_than_that() -> None:
    assert host_name("Hearth") == "hearth"
    assert host_name("llm.example") == "llm.example"
    for text in ("hearth:80", "*.lan", "http://hearth", "a/b", "", "a..b", "[::1]"):
        with pytest.raises(ValueError, match="not a host name"):
            host_name(text)
