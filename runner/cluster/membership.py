"""The replicas of each deployment that are ready, as Serve tells this process.

A module, not an object: Serve makes its routers itself.
"""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[str, frozenset[str]], None]

_ready: dict[str, frozenset[str]] = {}
_listeners: list[Listener] = []


def announce(app: str, replicas: frozenset[str]) -> None:
    """These are the replicas from now on."""
    _ready[app] = replicas
    for listener in list(_listeners):
        listener(app, replicas)


def ready(app: str) -> frozenset[str]:
    """Those of a deployment."""
    return _ready.get(app, frozenset())


def listen(listener: Listener) -> None:
    """Call listener with what changes from now on, and with what is known at once."""
    _listeners.append(listener)
    for app, replicas in dict(_ready).items():
        listener(app, replicas)
