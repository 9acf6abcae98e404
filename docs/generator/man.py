"""The manual pages, from the commands themselves: hearth(1), and hearth-VERB(1) for each verb.

Written in man(7)'s macros, which groff and mandoc both read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from cli.commands import VERBS, Verb
from cli.main import app
from cli.verb import load

_NOTE = '.\\" Written by `make docs-reference` from the code: change that, not this page.\n'
_DAEMON = (
    "The daemon starts by itself with the first command that needs it. Results go to stdout, "
    "progress and errors to stderr."
)
_EXIT = (
    "0 success; 1 an error; 2 wrong usage; 3 the model was not found, or, for status, no daemon is "
    "running; 4 an answer was cut off by a limit that you did not set; 130 stopped by Ctrl-C."
)


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("hearth", [], resilient_parsing=True)
    verbs = {f"hearth-{verb.name}.1": _verb(context, verb) for verb in VERBS.values()}
    return {"hearth.1": _overview(group), **verbs}


def _overview(group: Any) -> str:
    lines = [*_head("hearth", "run language models on this machine"),
             ".SH SYNOPSIS", ".B hearth", ".I command", "[options]", ".SH DESCRIPTION",
             *_prose(group.help or ""), ".PP",
             _text(_DAEMON), ".SH COMMANDS"]  # fmt: skip
    for verb in VERBS.values():
        also = f" Also: hearth {verb.alias}." if verb.alias else ""
        lines += [".TP", f".BR hearth\\-{_text(verb.name)} (1)", _text(f"{verb.help}.{also}")]
    lines += [".SH ENVIRONMENT", _text("hearth env lists all settings, and their values."),
              ".SH EXIT STATUS", _text(_EXIT)]  # fmt: skip
    return "\n".join([*lines, ""])


def _verb(parent: Any, verb: Verb) -> str:
    command = load(verb)
    context = command.make_context(verb.name, [], parent=parent, resilient_parsing=True)
    name, *words = " ".join(command.get_usage(context).removeprefix("Usage:").split()).split()[1:]
    summary = verb.help[0].lower() + verb.help[1:]
    lines = [*_head(f"hearth-{verb.name}", summary), ".SH SYNOPSIS",
             f".B hearth {_text(name)}", _text(" ".join(words)),
             ".SH DESCRIPTION", *_prose(command.help or "")]  # fmt: skip
    for title, kind in (("ARGUMENTS", "argument"), ("OPTIONS", "option")):
        records = [p.get_help_record(context) for p in command.get_params(context)
                   if p.param_type_name == kind]  # fmt: skip
        if any(records):
            lines.append(f".SH {title}")
        for names, meaning in filter(None, records):
            lines += [".TP", f".B {_text(names)}", _text(meaning) or "\\&"]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR hearth (1)", ""])


def _head(name: str, summary: str) -> list[str]:
    title = f'.TH {name.upper()} 1 "" hearth "hearth manual"'
    return [_NOTE + title, ".SH NAME", f"{_text(name)} \\- {_text(summary)}"]


def _prose(text: str) -> Iterator[str]:
    """Paragraphs, without the mark that keeps typer from wrapping one."""
    for number, part in enumerate(text.replace("\b", "").strip().split("\n\n")):
        if number:
            yield ".PP"
        yield _text(part)


def _text(text: str) -> str:
    """One line that is no request and in which roff changes no character."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    line = line.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    line = line.replace("~", "\\(ti").replace('"', "\\(dq")
    line = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", line)
    return f"\\&{line}" if line.startswith(".") else line
