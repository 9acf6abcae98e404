"""A verb's module as typer's command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from cli.commands import Verb


class VerbCommand(TyperCommand):
    """A verb. Its usage has no braces around the names of required arguments."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line after the command's name."""
        pieces = super().collect_usage_pieces(ctx)
        return [piece if "|" in piece else piece.strip("{}") for piece in pieces]


def load(verb: Verb) -> Any:
    """The command of verb: imports its module. A module's CommandClass reads its arguments."""
    module = import_module(verb.module)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(verb.name, cls=getattr(module, "CommandClass", VerbCommand))(module.command)
    return typer.main.get_command(app)
