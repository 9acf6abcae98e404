"""What the scripts in cli/shells offer for a word. Starts no daemon, and says nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.client import Client


_MANIFESTS = "manifests"
_DEFAULTS = ("registry.ollama.ai", "library", "latest")


def offer(command: Any, words: list[str]) -> None:
    """Print what the last of words may become: a line for each, with a tab and what it means."""
    from typer._completion_classes import BashComplete  # knows nothing of bash that is used here

    *before, incomplete = words or [""]
    for item in BashComplete(command, {}, "hearth", "").get_completions(before, incomplete):
        print(item.value, " ".join((item.help or "").split()), sep="\t")


def installed_models(incomplete: str) -> list[str]:
    """Names of installed models that begin with incomplete: of the daemon's folder where this user
    can read it, which takes a fifth of the time of asking the daemon and needs none."""
    from cli.addresses import daemon_facts, is_local, spoken_plainly
    from runner.settings import SettingsError, load

    try:
        settings = load()
    except SettingsError:
        return []
    if is_local(spoken_plainly(settings)):
        told = daemon_facts(settings, settings.address.reachable.url).get("models")
        if names := _stored(Path(told) if told else settings.models_dir):
            return sorted(name for name in names if name.startswith(incomplete))
    return _names(lambda client: (model["name"] for model in client.tags()), incomplete)


def _stored(root: Path) -> list[str]:
    """The names of a store's models in their shortest form, from the names of its manifests."""
    found = []
    for folder, _, tags in os.walk(root / _MANIFESTS):
        place = Path(folder).relative_to(root / _MANIFESTS).parts
        if len(place) != 3:
            continue
        host, namespace, model = place
        host = "" if host == _DEFAULTS[0] else f"{host}/"
        namespace = "" if not host and namespace == _DEFAULTS[1] else f"{namespace}/"
        found += [f"{host}{namespace}{model}" + ("" if tag == _DEFAULTS[2] else f":{tag}")
                  for tag in tags]  # fmt: skip
    return found


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
    from modelfile.quantization import CALIBRATED, TYPES

    known = {**TYPES, **CALIBRATED}
    names = {name.lower() if incomplete.islower() else name: kind for name, kind in known.items()}
    return [(name, kind.advice) for name, kind in names.items() if name.startswith(incomplete)]


def _names(ask: Callable[[Client], Iterable[str]], incomplete: str) -> list[str]:
    from cli.connection import connect

    try:
        client = connect(start=False)
        names = sorted(ask(client))
    except Exception:  # whatever is wrong, a message in the middle of a command line is worse
        return []
    return [name for name in names if name.startswith(incomplete)]
