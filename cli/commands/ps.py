"""hearth ps: List the models in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cli.render import print_json, print_table, processor, short_digest, size, until

if TYPE_CHECKING:
    from runner.replies import RunningModelEntry

_HEADER = ("NAME", "ID", "QUANTIZATION", "MEMORY", "PROCESSOR", "CONTEXT", "UNTIL")


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """List the models in memory."""
    from cli.connection import connect

    models = connect().ps()
    if as_json:
        print_json({"models": models})
    else:
        print_table(_HEADER, [row(model, datetime.now(UTC)) for model in models])


def row(model: RunningModelEntry, now: datetime) -> tuple[str, ...]:
    """One line of the table."""
    shared = "shares_memory_of" in model
    return (
        str(model.get("name") or model.get("model")),
        short_digest(model.get("digest")),
        _quantization(model),
        "shared" if shared else size(model.get("size", 0)),
        "-" if shared else _processor(model),
        _context(model),
        until(model.get("expires_at"), now),
    )


def _quantization(model: RunningModelEntry) -> str:
    """What the weights in memory are: the file's, or what they became while it was loaded."""
    stored = model.get("details", {}).get("quantization_level") or "-"
    made = model.get("quantize")
    return stored if made is None else f"{made} of {stored}"


def _processor(model: RunningModelEntry) -> str:
    """Where its memory is; of several devices, on which."""
    where = processor(model.get("size", 0), model.get("size_vram", 0))
    devices = model.get("devices", [])
    if len(devices) < 2:
        return where
    parts = [f"{each['name']} {size(each['size'])}" for each in devices]
    return f"{where}: {', '.join(parts)}"


def _context(model: RunningModelEntry) -> str:
    """The longest context, and what of it the cache can hold so far."""
    length, pool = model.get("context_length", 0), model.get("pool_tokens", 0)
    return f"{pool} of {length}" if 0 < pool < length else str(length or "-")
