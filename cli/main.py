"""The hearth command: finds the verb, imports only that, and turns errors into exit codes.

Start-up time is a feature here: nothing beyond typer may be imported at the top.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cli.commands import ALIASES, VERBS
from cli.completion import offer
from cli.errors import INTERRUPTED, report
from cli.verb import load

_EPILOG = """\b
Exit codes: 0 success, 1 error, 2 wrong usage, 3 model not found or, for status, no daemon running,
4 answer cut off by a limit that you did not set, 130 stopped by Ctrl-C.
Results go to stdout, progress and errors to stderr. `hearth env` lists the settings."""


class VerbGroup(TyperGroup):
    """The group of all verbs. Help and completion see their names and help lines; a verb is
    imported when it is run."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for verb in VERBS.values():
            self.add_command(TyperCommand(verb.name, short_help=verb.help))
        for alias in ALIASES:
            self.add_command(TyperCommand(alias, hidden=True))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The verb that args name; similar names are proposed for an unknown one."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load(VERBS[ALIASES.get(name, name)]), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. Ctrl-D at a question is like Ctrl-C."""
        try:
            return super().invoke(ctx)
        except EOFError:
            print(file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=VerbGroup,
    name="hearth",
    invoke_without_command=True,
    epilog=_EPILOG,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hearth {version('hearth')}")
        raise typer.Exit


@app.callback()
def hearth(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Run language models on this machine.

    hearth run ember "What can you do?"
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def execute(args: list[str]) -> int:
    """Run the command line in args; returns the exit code."""
    try:
        command: Any = typer.main.get_command(app)
        if "_HEARTH_COMPLETE" in os.environ:
            offer(command, args)
            return 0
        command(args, prog_name="hearth")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return report(error)
    return 0


def main() -> None:
    """The console script."""
    if isinstance(sys.stdout, TextIOWrapper):  # models write more than old encodings have
        sys.stdout.reconfigure(errors="replace")
    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
