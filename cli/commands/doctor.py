"""hearth doctor: Find problems and the commands that fix them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import ERROR, CliError
from cli.terminal import status

if TYPE_CHECKING:
    from cli.doctor.finding import Finding


def command(
    network: Annotated[
        bool, typer.Option("--network", help="Also try proxies and registries")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE",
            help="Also write a .tar.gz for a bug report; it has model names, no prompts or keys",
        ),
    ] = None,
) -> None:
    """Find problems and the commands that fix them. Changes nothing and starts no daemon.

    Each line says ok, warning or problem; the command that fixes it is on the line below. The exit
    code is 1 if there is a problem.
    """
    from cli.doctor.bundle import vars_of, write_bundle
    from cli.doctor.examination import examine, usable_settings
    from cli.render import print_json

    settings, findings = usable_settings()
    findings += examine(settings, network)
    counts = {level: sum(f.level == level for f in findings) for level in ("problem", "warning")}
    if as_json:
        facts = {"problems": counts["problem"], "warnings": counts["warning"]}
        print_json({**facts, "findings": [vars_of(finding) for finding in findings]})
    else:
        _print(findings)
    if bundle is not None:
        try:
            names = write_bundle(bundle, findings, settings)
        except FileExistsError:
            raise CliError(f"{bundle} already exists: choose another name") from None
        status(f"wrote {bundle} ({', '.join(names)}); check it before you send it")
    if counts["problem"]:
        raise typer.Exit(ERROR)


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.area) for finding in findings)
    for finding in findings:
        print(f"{finding.level:<8} {finding.area:<{width}}  {' '.join(finding.text.split())}")
        if finding.mend is not None:
            print(f"{'':<{8 + width + 3}}-> {finding.mend}")
