"""The address of the daemon for these settings, and the files that it has written for its user.

Connects to nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace

from cli.private_files import read_regular
from runner.setting_values import Address, parse_address
from runner.settings import Settings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def daemon_facts(settings: Settings, url: str) -> dict[str, str]:
    """What the daemon at url has written down for this user: its token, and models, the folder of
    its models; nothing where it is another user's or another machine's."""
    try:
        facts = json.loads(read_regular(settings.state_dir / "daemon.json"))
        is_own = parse_address(facts["url"]).reachable.url == url
        known = {"token", "models"} & facts.keys() if is_own else ()
        return {key: str(facts[key]) for key in known}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def spoken_plainly(settings: Settings) -> Address:
    """host, as if its daemon spoke no https: with a certificate one started here does."""
    return settings.host if settings.tls_cert is None else replace(settings.host, scheme="http")


def is_local(address: Address) -> bool:
    """Whether a daemon started here would listen at this address."""
    return address.scheme == "http" and address.reachable.host in LOOPBACK
