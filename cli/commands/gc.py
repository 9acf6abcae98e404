"""hearth gc, prune: Remove files that no model needs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.errors import USAGE, CliError


def command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Print what would be removed, remove nothing")
    ] = False,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="Keep files younger than TIME, such as 1h or 0")
    ] = "1h",
    partials: Annotated[
        str, typer.Option(metavar="TIME", help="Keep unfinished downloads younger than TIME")
    ] = "336h",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Remove files that no model needs, and abandoned downloads.

    Files that a pull, a build or a loaded model uses are kept.
    """
    from cli.connection import connect
    from cli.render import print_json

    body = {
        "dry_run": dry_run,
        "grace_s": _seconds("--grace", grace),
        "partial_age_s": _seconds("--partials", partials),
    }
    collected = connect().gc(body)
    if as_json:
        print_json(collected)
    else:
        _print(collected)


def _seconds(option: str, text: str) -> float:
    from runner.setting_values import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise CliError(f"{option} {text!r} is invalid: {error}", USAGE) from None
    if seconds is None:
        raise CliError(f"{option} {text!r} is invalid: it must not be negative", USAGE)
    return seconds


def _print(collected: dict[str, Any]) -> None:
    from cli.render import size
    from cli.terminal import status

    for removed in (*collected["blobs"], *collected["partials"]):
        print(f"{size(removed['size']):>8}  {removed['path']}")
    count = len(collected["blobs"]) + len(collected["partials"])
    verb = "would be removed" if collected["dry_run"] else "removed"
    noun = "file" if count == 1 else "files"
    print(f"{count} {noun}, {size(collected['size'])} {verb}")
    if collected["skipped"]:
        status(f"no blobs were removed: {collected['skipped']}")
