"""What the texts of settings mean: addresses, durations, sizes, flags, lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from modelfile.cache_types import CACHE_TYPES, TORCH_ONLY
from runner.origins import host_name, origin_pattern

DEFAULT_PORT = 4327  # H-E-A-R on a telephone
_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon listens, and where clients find it."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def reachable(self) -> Address:
        """Where to connect to: a daemon that listens everywhere is reached on this machine."""
        return replace(self, host=_WILDCARD.get(self.host, self.host))


def parse_address(text: str) -> Address:
    """An address from host, host:port, :port, [v6]:port or a URL. Raises ValueError."""
    given = text.strip().strip("\"'")
    scheme, rest = given.split("://", 1) if "://" in given else ("http", given)
    if scheme not in ("http", "https"):
        raise ValueError("the scheme must be http or https")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"
    parts = urlsplit(f"//{rest}")
    fallback = DEFAULT_PORT if "://" not in given else {"http": 80, "https": 443}[scheme]
    port = fallback if parts.port is None else parts.port  # 0: any free port
    return Address(parts.hostname or "127.0.0.1", port, scheme)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Comma-separated addresses. Raises ValueError."""
    return tuple(parse_address(word) for word in _words(text))


MIN_SILENCE_S = 0.5
_DURATION = re.compile(r"(?<!\d)(\d++(?:\.\d++)?+)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float | None:
    """Seconds of "300", "5m", "1h30m", "250ms"; negative means forever (None).
    Raises ValueError."""
    given = text.strip()
    if given.startswith("-"):
        parse_duration(given[1:])
        return None
    if re.fullmatch(r"\d+(\.\d+)?", given):
        return float(given)
    parts = _DURATION.findall(given)
    if not parts or "".join(n + u for n, u in parts) != given:
        raise ValueError('use a duration such as 300, "5m" or "1h30m"; negative for forever')
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_silence(text: str) -> float:
    """Seconds of a duration, no less than two beats of a replica. Raises ValueError."""
    silence_s = parse_duration(text)
    if silence_s is None or silence_s < MIN_SILENCE_S:
        raise ValueError(f"use a duration of {MIN_SILENCE_S:g} s or more")
    return silence_s


KV_CACHE_TYPES = tuple(name for name in CACHE_TYPES if name not in TORCH_ONLY)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of "8GiB", "8G", "500MB", "1000". Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError('use a size such as "8GiB" or "500MB"')
    number, prefix, suffix = match.groups()
    base = 1000 if (suffix or "").upper() == "B" and prefix else 1024
    return int(float(number) * base ** " KMGT".index(prefix.upper() or " "))


def parse_flag(text: str) -> bool:
    """Of 1, true, yes, on and their opposites. Raises ValueError."""
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("use 1 or 0")


def parse_auto_flag(text: str) -> bool | None:
    """A flag; None: auto. Raises ValueError."""
    return None if text.strip().lower() == "auto" else parse_flag(text)


def parse_count(text: str) -> int:
    """A whole number of at least 0. Raises ValueError."""
    if not re.fullmatch(r"\s*\d{1,15}\s*", text):
        raise ValueError("use a whole number of at least 0")
    return int(text)


def parse_optional_count(text: str) -> int | None:
    """A count; None: 0. Raises ValueError."""
    return parse_count(text) or None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def parse_hosts(text: str) -> tuple[str, ...]:
    """Comma-separated hosts, with or without a port. Raises ValueError."""
    words = _words(text)
    for word in words:
        parts = urlsplit(f"//{word}")
        bare = parts.netloc == word and "@" not in word and parts.hostname
        if not bare or parts.port == 0 or word.endswith(":"):
            raise ValueError("use hosts such as registry.lan:5000, [fd00::1]:5000 or 10.0.0.5")
    return words


def parse_origins(text: str) -> tuple[str, ...]:
    """Comma-separated web origins; see runner.origins. Raises ValueError."""
    words = _words(text)
    for word in words:
        origin_pattern(word)
    return words


def parse_host_names(text: str) -> tuple[str, ...]:
    """Comma-separated names of hosts. Raises ValueError."""
    return tuple(map(host_name, _words(text)))


def choice(*allowed: str) -> Callable[[str], str]:
    """A parser of one of these words."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            raise ValueError(f"use one of {', '.join(allowed)}")
        return word

    return parse


def parse_path(text: str) -> Path:
    """A path; ~ is the home folder. Raises ValueError."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name of a user that there is not
        raise ValueError("there is no such user, so no home folder") from None
