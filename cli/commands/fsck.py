"""hearth fsck: Check the store and repair damage."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.errors import ERROR


def command(
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair damage; damaged files are downloaded again")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Compare only file sizes")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
) -> None:
    """Check the store and repair damage.

    Reads every file. The exit code is 1 if damage remains. A file is never removed if it may be
    the only copy.
    """
    from cli.connection import connect
    from cli.progress import follow, style_for

    summary = follow(connect().fsck(quick, repair), style_for(as_json, quiet=False), _tell)
    if not as_json:
        print(summed_up(summary))
    if summary.get("unmended"):
        raise typer.Exit(ERROR)


def _tell(line: dict[str, Any]) -> bool:
    if "finding" in line:
        print(described(line["finding"]))
    elif "outcome" in line:
        print(outcome(line["outcome"]))
    return "total" not in line


def described(finding: dict[str, Any]) -> str:
    """A finding in words."""
    text = str(finding["message"])
    if finding.get("damage") and finding.get("models"):
        text += f"; needed by {', '.join(finding['models'])}"
    return text


def outcome(mended: dict[str, Any]) -> str:
    """What became of a finding, in words."""
    if mended["mended"]:
        how = "" if mended["how"] == "here" else f" {mended['how']}"
        return f"repaired {mended['path']}{how}"
    return f"not repaired: {mended['path']}: {mended['reason']}"


def summed_up(summary: dict[str, Any]) -> str:
    """The sums in words, and what to do next."""
    from cli.render import size

    models = "1 model" if summary["models"] == 1 else f"{summary['models']} models"
    seen = f"{models}, {summary['blobs']} blobs, {size(summary['size'])} checked"
    if not summary["findings"]:
        return f"{seen}, no damage found"
    text = f"{seen}: {summary['findings']} problems found, {summary['mended']} repaired"
    if summary["unmended"]:
        affected = ", ".join(summary["affected"]) or "none"
        text += f", {summary['unmended']} still damaged; affected models: {affected}"
        if not summary["mended"]:
            text += "\n`hearth fsck --repair` repairs what can be repaired"
    return text
