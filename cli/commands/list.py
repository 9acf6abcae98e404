"""hearth list, ls: List the installed models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cli.terminal import status

if TYPE_CHECKING:
    from runner.replies import OllamaModelEntry

_HEADER = ("NAME", "ID", "SIZE", "MODIFIED")


def command(
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Only models whose names begin with it")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """List the installed models."""
    from cli.connection import connect
    from cli.render import print_json

    models = matching(connect().tags(), prefix)
    if as_json:
        print_json({"models": models})
    else:
        print_models(models)


def matching(models: list[OllamaModelEntry], prefix: str) -> list[OllamaModelEntry]:
    """The models whose name begins with prefix, whatever its case."""
    return [model for model in models if _name(model).lower().startswith(prefix.lower())]


def print_models(models: list[OllamaModelEntry], prefix: str = "") -> None:
    """The table of the models whose name begins with prefix."""
    from cli.render import ago, print_table, short_digest, size

    now = datetime.now(UTC)
    rows = [
        (
            _name(model),
            short_digest(model.get("digest")),
            size(model.get("size", 0)),
            ago(model.get("modified_at"), now),
        )
        for model in matching(models, prefix)
    ]
    print_table(_HEADER, rows)
    for model in models:
        if fault := model.get("fault"):
            status(f"{_name(model)} is unusable: {fault}")
        if crashes := model.get("crashes"):
            status(f"{_name(model)} {crashes}; create or pull it again, or remove it")


def _name(model: OllamaModelEntry) -> str:
    return str(model.get("name") or model.get("model") or "")
