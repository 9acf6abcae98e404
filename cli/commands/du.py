"""hearth du: what the store takes on the disk."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_HEADER = ("NAME", "SIZE", "OWN", "SHARED")


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Show what the models take. OWN is what removing a model frees; SHARED is used by other
    models too."""
    from cli.connection import connect
    from cli.render import print_json

    with connect() as client:
        usage = client.du()
    if as_json:
        print_json(usage)
    else:
        _print(usage)


def _print(usage: dict[str, Any]) -> None:
    from cli.render import print_table, size

    models = sorted(usage["models"], key=lambda model: (-model["own"], model["name"]))
    rows = [
        (item["name"], size(item["size"]), size(item["own"]), size(item["shared"]))
        for item in models
    ]
    print_table(_HEADER, rows)
    hint = "  (hearth gc removes it)" if usage["unused"] else ""
    print(f"\nmodels           {size(usage['blobs'] - usage['unused'])}")
    print(f"needed by none   {size(usage['unused'])}{hint}")
    print(f"unfinished pulls {size(usage['partials'])}")
    print(f"other files      {size(usage['other'])}")
    print(f"in total         {size(usage['total'])}, {size(usage['free'])} free")
    if usage["linked"]:
        print(f"{size(usage['linked'])} of it are shared with files outside the store")
