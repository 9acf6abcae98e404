"""The host and the port that a Host header or an Origin names, read exactly: what is written in any
other way than a name, an IPv4 address or an IPv6 address in brackets names nothing.

Source: RFC 3986, section 3.2.2, without user information, percent signs, zones and empty ports.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL}){{0,126}}"
_AUTHORITY = re.compile(rf"(?:\[([0-9a-f:.]{{2,45}})\]|({_NAME}))(?::([0-9]{{1,5}}))?", re.ASCII)
_ORIGIN = re.compile(r"(https?)://(.+)", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_authority(text: str) -> tuple[str, int | None] | None:
    """The host, in small letters and without brackets, and the port where there is one; None for
    what is no host."""
    found = _AUTHORITY.fullmatch(text.lower()) if text.isascii() else None
    if found is None or (found[3] is not None and not 0 < int(found[3]) < 65_536):
        return None
    host = found[1] or found[2]
    if found[1] is not None and not (":" in host and is_address(host)):
        return None
    return host, None if found[3] is None else int(found[3])


def parse_origin(text: str) -> tuple[str, int] | None:
    """The host and the port of a web origin; None for what is no origin of the web."""
    found = _ORIGIN.fullmatch(text.lower())
    authority = None if found is None else parse_authority(found[2])
    if found is None or authority is None:
        return None
    host, port = authority
    return host, _DEFAULT_PORTS[found[1]] if port is None else port


def is_address(host: str) -> bool:
    """Whether a host is an IP address, in the one form that no parser reads as a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host, an address perhaps in brackets."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
