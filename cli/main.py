"""The hearth command: finds the verb, imports only that, and turns errors into exit codes.

Start-up time is a feature here: nothing beyond typer may be imported at the top.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from cli.commands import ALIASES, MODULES, VERBS

EPILOG = """\
Exit codes: 0 success, 1 error, 2 wrong usage, 3 model not found, 130 stopped by Ctrl-C.
Results go to stdout, progress and errors to stderr. `hearth env` lists the settings."""

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Quick:
    """Converts absent and textual values of a parameter itself and leaves others to typer, which
    builds a pydantic model for each parameter: 120 ms of a verb's start."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._is_text = parameter.type_descriptor.annotation in (str, list[str])

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value for the verb."""
        is_list = param.multiple or param.nargs == -1
        if value is None or self._is_text:
            return list(value or ()) if is_list else value
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


class QuickParameters:
    """A command whose parameters are converted quickly, with the versions of typer that are
    slow at it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, with the one for help."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "_runtime_param", ...) is None:
                parameter._runtime_param = Quick(parameter)
        return parameters


class Verb(QuickParameters, TyperCommand):
    """One verb."""


class Verbs(QuickParameters, TyperGroup):
    """The group of all verbs, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names that help and completion show."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb as a command; None when there is no such verb."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        module = import_module(f"cli.commands.{MODULES.get(name, name)}")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, cls=Verb, context_settings=dict(_SETTINGS))(module.command)
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that args name; near names are proposed for an unknown one."""
        self.commands = cast(Any, dict.fromkeys([*VERBS, *ALIASES]))
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit codes, line by line."""
        formatter.write("\n")
        for line in EPILOG.splitlines():
            formatter.write(f"{line}\n")


app = typer.Typer(
    cls=Verbs,
    name="hearth",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=dict(_SETTINGS),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hearth {version('hearth')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def hearth(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print it"),
    ] = False,
) -> None:
    """Run language models on this machine.

    hearth run ember "What can you do?"
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def execute(args: list[str]) -> int:
    """Run the command line in args; returns the exit code."""
    from cli.errors import INTERRUPTED, report

    try:
        app(args=_with_values(args), prog_name="hearth")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return report(error)
    return 0


def _with_values(args: list[str]) -> list[str]:
    """args with a bare --think spelled out: like Ollama's it takes a value after = only."""
    end = args.index("--") if "--" in args else len(args)
    return [f"{arg}=true" if arg == "--think" else arg for arg in args[:end]] + args[end:]


def main() -> None:
    """The console script."""
    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
