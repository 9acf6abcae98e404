"""Names for the shell's completion. Those of models and keys are from a daemon that is running:
starts none, says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.client import Client


def installed_models(incomplete: str) -> list[str]:
    """Names of installed models that begin with incomplete."""
    return _names(lambda client: (model["name"] for model in client.tags()), incomplete)


InstalledModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", autocompletion=installed_models, help="Name of an installed model"
    ),
]
InstalledModels = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...", autocompletion=installed_models, help="Names of installed models"
    ),
]


def loaded_models(incomplete: str) -> list[str]:
    """Names of models in memory that begin with incomplete."""
    return _names(lambda client: (model["name"] for model in client.ps()), incomplete)


def key_names(incomplete: str) -> list[str]:
    """Names of API keys that begin with incomplete."""
    return _names(lambda client: [key["name"] for key in client.keys()], incomplete)  # noqa: SIM118


def parameters(incomplete: str) -> list[tuple[str, str]]:
    """Names of parameters that begin with incomplete, with what they mean."""
    from modelfile.parameters import PARAMETERS

    return [(name, row.doc) for name, row in sorted(PARAMETERS.items())
            if name.startswith(incomplete)]  # fmt: skip


def assignments(incomplete: str) -> list[tuple[str, str]]:
    """What -p NAME=VALUE may begin with."""
    return [(f"{name}=", doc) for name, doc in parameters(incomplete)]


def quantization_types(incomplete: str) -> list[tuple[str, str]]:
    """Types of quantization that begin with incomplete, with advice."""
    from modelfile.quantization import TYPES

    names = {name.lower() if incomplete.islower() else name: kind for name, kind in TYPES.items()}
    return [(name, kind.advice) for name, kind in names.items() if name.startswith(incomplete)]


def _names(ask: Callable[[Client], Iterable[str]], incomplete: str) -> list[str]:
    from cli.connection import connect

    try:
        client = connect(start=False)
        names = sorted(ask(client))
    except Exception:  # whatever is wrong, a message in the middle of a command line is worse
        return []
    return [name for name in names if name.startswith(incomplete)]
