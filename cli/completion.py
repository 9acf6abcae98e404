"""Names for the shell's completion, from a daemon that is running. Starts none, says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.client import Client


def installed_models(incomplete: str) -> list[str]:
    """Names of installed models that begin with incomplete."""
    return _names(lambda client: (model["name"] for model in client.tags()), incomplete)


def loaded_models(incomplete: str) -> list[str]:
    """Names of models in memory that begin with incomplete."""
    return _names(lambda client: (model["name"] for model in client.ps()), incomplete)


def _names(ask: Callable[[Client], Iterable[str]], incomplete: str) -> list[str]:
    from cli.connection import connect

    try:
        client = connect(start=False)
        names = sorted(ask(client))
    except Exception:  # whatever is wrong, a message in the middle of a command line is worse
        return []
    return [name for name in names if name.startswith(incomplete)]
