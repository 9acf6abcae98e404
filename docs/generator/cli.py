"""The page of all commands, from the commands themselves."""

from __future__ import annotations

import re
from typing import Any

import typer

from cli.commands import VERBS, Verb
from cli.main import app
from cli.verb import load
from docs.generator.markdown import cell, code, table

_INTRO = """\
# Command line

The daemon starts by itself with the first command that needs it. Results go to stdout, progress
and errors to stderr. Every command takes `--help`, and has a manual page: `man hearth-run`.
`hearth --version` prints the version, and `hearth completion --install` lets bash, zsh and fish
complete commands, options, and the names of models, keys, parameters and types.

| exit code | means |
| --- | --- |
| 0 | success |
| 1 | an error |
| 2 | wrong usage |
| 3 | the model was not found; for `status`: no daemon is running |
| 4 | for `run`: the answer was cut off by a limit that you did not set |
| 130 | stopped by Ctrl-C |
"""


def page() -> str:
    """The page."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("hearth", [], resilient_parsing=True)
    rows = [
        (f"[`hearth {verb.name}`](#hearth-{verb.name})", cell(verb.help)) for verb in VERBS.values()
    ]
    sections = [_section(context, verb) for verb in VERBS.values()]
    return "\n".join([_INTRO, table(("command", "what it does"), rows), "", *sections])


def _section(context: Any, verb: Verb) -> str:
    command = load(verb)
    inner = command.make_context(verb.name, [], parent=context, resilient_parsing=True)
    usage = " ".join(command.get_usage(inner).removeprefix("Usage:").split())
    lines = [f"## hearth {verb.name}", "", f"```text\n{usage}\n```", "", _prose(command.help or "")]
    if verb.alias is not None:
        lines += ["", f"Also: `hearth {verb.alias}`."]
    for kind in ("argument", "option"):
        if rows := _rows(command, inner, kind):
            lines += ["", table((kind, "meaning"), rows)]
    return "\n".join([*lines, ""])


def _rows(command: Any, context: Any, kind: str) -> list[tuple[str, str]]:
    found = [p for p in command.get_params(context) if p.param_type_name == kind]
    records = [p.get_help_record(context) for p in found if "--help" not in p.opts]
    return [(code(names), cell(_escaped(_facts(text)))) for names, text in filter(None, records)]


def _facts(text: str) -> str:
    """What typer says of a parameter between brackets, between parentheses: no link."""
    return re.sub(r"\[(required|default: [^\]]*|x[<>][^\]]*)\]", r"(\1)", text)


def _prose(text: str) -> str:
    return "\n\n".join(_escaped(" ".join(part.split())) for part in text.split("\n\n"))


def _escaped(text: str) -> str:
    """Text in which Markdown sees no markup."""
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)
