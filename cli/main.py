"""The hearth command: finds the verb, imports only that, and turns errors into exit codes.

Start-up time is a feature here: nothing beyond click may be imported at the top.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from cli.commands import ALIASES, VERBS
from cli.errors import INTERRUPTED, report

_EPILOG = """\b
Exit codes: 0 success, 1 error, 2 wrong usage, 3 model not found, 130 stopped by Ctrl-C.
Results go to stdout, progress and errors to stderr. `hearth env` lists the settings."""


class VerbGroup(click.Group):
    """The group of all verbs, each imported when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names that help and completion show."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb as a command; None when there is no such verb."""
        verb = VERBS.get(ALIASES.get(cmd_name, cmd_name))
        if verb is None:
            return None
        command: click.Command = import_module(verb.module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb.name, verb.help) for verb in VERBS.values()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. Ctrl-C ends it without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that args name; similar names are proposed for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            known = [*VERBS, *ALIASES]
            raise click.NoSuchCommand(error.command_name, possibilities=known, ctx=ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs that begin with incomplete, without importing them, or the options."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(verb.name, help=verb.help)
            for verb in VERBS.values()
            if verb.name.startswith(incomplete)
        ]


def _completion(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from cli.shell_completion import install, script

    print(install(app) if param.name == "install_completion" else script(app))
    ctx.exit()


@click.group(
    cls=VerbGroup,
    name="hearth",
    invoke_without_command=True,
    epilog=_EPILOG,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(
    None, "--version", "-V", package_name="hearth", message="hearth %(version)s",
    help="Show the version and exit.",
)  # fmt: skip
@click.option(
    "--install-completion", is_flag=True, is_eager=True, expose_value=False, callback=_completion,
    help="Install completion for the shell of $SHELL.",
)  # fmt: skip
@click.option(
    "--show-completion", is_flag=True, is_eager=True, expose_value=False, callback=_completion,
    help="Print the completion script for the shell of $SHELL.",
)  # fmt: skip
@click.pass_context
def app(context: click.Context) -> None:
    """Run language models on this machine.

    hearth run ember "What can you do?"
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def execute(args: list[str]) -> int:
    """Run the command line in args; returns the exit code."""
    try:
        code = app.main(args, prog_name="hearth", standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as end:  # completion, a closed pipe
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        return report(error)
    return code if isinstance(code, int) else 0


def main() -> None:
    """The console script."""
    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
