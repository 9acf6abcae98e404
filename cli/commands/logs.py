"""hearth logs: Show the daemon's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import CliError

if TYPE_CHECKING:
    from runner.settings import Settings


def command(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines until Ctrl-C")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="Maximum number of lines")
    ] = 100,
) -> None:
    """Show the log of the daemon in the background, or of the service.

    The log is also available when the daemon is not running. HEARTH_LOG_LEVEL=debug logs each
    request.
    """
    from runner.programs import become
    from runner.settings import load

    become(_reader(load(), lines, follow))


def _reader(settings: Settings, lines: int, follow: bool) -> list[str]:
    """The program that shows the log, and its arguments. Raises CliError where there is none."""
    from cli.addresses import is_local, spoken_plainly
    from cli.connection import new_client
    from cli.daemon import log_file, running
    from cli.log_viewer import log_viewer
    from runner.client import ClientError

    client = new_client(settings)
    if not is_local(spoken_plainly(settings)):
        raise CliError(f"the log of {client.base_url} is on that machine: run hearth logs there")
    try:
        about = running(client)
    except ClientError:
        about = None  # whatever is wrong with it, the log may say
    if about is not None and about.get("log") is None:
        raise CliError(
            f"the daemon (process {about.get('pid')}) logs to where it was started, not to a file"
        )
    journal = _journal()
    if journal and (about is None or about.get("log") == "journal"):
        return [*journal, *(("-f",) if follow else ()), "-n", str(lines)]
    log = log_file(settings)
    if not log.exists():
        raise CliError(f"there is no log: {log} does not exist; the daemon was not started yet")
    return log_viewer(log, lines, follow)


def _journal() -> list[str]:
    """What shows the log of an installed service that has a journal."""
    from cli.service.choice import find_manager

    try:
        manager = find_manager()
        return list(manager.journal) if manager.state().installed else []
    except CliError:
        return []
