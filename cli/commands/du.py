"""hearth du: Show how much disk space the models use."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_HEADER = ("NAME", "SIZE", "OWN", "SHARED")


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Show how much disk space the models use.

    OWN: space that removing the model frees. SHARED: space that it shares with other models.
    """
    from cli.connection import connect
    from cli.render import print_json

    usage = connect().du()
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
    hint = "  (`hearth gc` removes it)" if usage["unused"] else ""
    print(f"\nmodels            {size(usage['blobs'] - usage['unused'])}")
    print(f"unused            {size(usage['unused'])}{hint}")
    print(f"partial downloads {size(usage['partials'])}")
    print(f"other files       {size(usage['other'])}")
    print(f"total             {size(usage['total'])}, {size(usage['free'])} free")
    if usage["linked"]:
        print(f"{size(usage['linked'])} of that is shared with files outside the store")
