"""Web origins: whose pages may use a daemon, by default and by the patterns of HEARTH_ORIGINS.

An Origin header is written by the browser and compared as a whole. A pattern is an origin in which
one * stands for a part, as in OLLAMA_ORIGINS; where Ollama's would let names in that anybody can
register (http://192.168.* is the beginning of http://192.168.evil.example), it does not here.
"""

from __future__ import annotations

import re

from runner.authority import parse_authority, parse_origin

LOOPBACK = ("localhost", "127.0.0.1", "0.0.0.0", "::1")

# Only programs show these: a file that a browser opens has the origin null.
_APPS = re.compile(r"(?:app|file|tauri|vscode-webview|vscode-file)://[a-z0-9_.-]*(?::[0-9]{1,5})?")

_SCHEME = r"[a-z][a-z0-9+.-]*"
_ORIGIN = re.compile(rf"{_SCHEME}://[a-z0-9_.-]*(?::[0-9]{{1,5}})?")
_WEB_SCHEMES = ("http://", "https://")
_PORT = r"(?::[0-9]{1,5})?"
_SAMPLES = ("", "a", "1", "1.1", ":1", "http", "http://a", "http://")
_EXAMPLES = "use origins such as https://app.example, http://*.lan or chrome-extension://*"


def is_local_origin(origin: str) -> bool:
    """Whether an origin, in small letters, is a page of this machine's loopback at any port, or an
    application that brings its pages itself."""
    host, _ = parse_origin(origin) or (None, None)
    return host in LOOPBACK or _APPS.fullmatch(origin) is not None


def origin_pattern(text: str) -> re.Pattern[str]:
    """What the origins that text lets in look like, in small letters and as a whole. Raises
    ValueError for a text that is no origin's, names too much or matches none."""
    given = text.lower()
    given = given if given.endswith("://") else given.removesuffix("/")
    if given == "*":
        return re.compile(r"(?!null$).+")
    if given == "null":
        raise ValueError(
            "null is the origin of files, and of pages that hide theirs, on any web site"
        )
    if given.count("*") > 1:
        raise ValueError(f"{text!r} has more than one *")
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        if given.startswith(scheme):
            given = given.removesuffix(port)  # browsers leave it out
    before, star, after = given.partition("*")
    found = re.escape(before) + (star and _between(text, before, after)) + re.escape(after)
    pattern = re.compile(found)
    samples = (before + sample + after for sample in _SAMPLES)
    if not any(pattern.fullmatch(sample) and _is_origin(sample) for sample in samples):
        raise ValueError(f"{text!r} is not a web origin: {_EXAMPLES}")
    return pattern


def _between(text: str, before: str, after: str) -> str:
    """What a * may stand for, between what is before and after it. Raises ValueError."""
    if not before:
        return _SCHEME if after.startswith("://") else rf"{_SCHEME}://[^/?#@]*"
    if before.endswith("://"):
        return r"[^/?#@]*"
    _, _, host = before.partition("://")
    if ":" in host:
        return "[0-9]{1,5}"
    if after and not after.startswith(":"):
        return r"[^/?#@:]*"  # the domain stands behind it
    port = "" if after else _PORT
    if re.fullmatch(r"[0-9.]+", host):
        return rf"[0-9.]+{port}"
    if host.endswith("."):
        raise ValueError(f"{text!r} would let any domain in: {_EXAMPLES}")
    return rf"[a-z0-9_-]*{port}"


def _is_origin(text: str) -> bool:
    if text.startswith(_WEB_SCHEMES):
        return parse_origin(text) is not None
    return _ORIGIN.fullmatch(text) is not None


def host_name(text: str) -> str:
    """The name of a host in small letters. Raises ValueError for a text that is not only that."""
    host, port = parse_authority(text) or ("", None)
    if not host or port is not None or host != text.lower():
        raise ValueError(f"{text!r} is not a host name: use names such as hearth or llm.example")
    return host
