"""The page of all settings, from runner.settings."""

from __future__ import annotations

from dataclasses import fields

from docs.generator.markdown import cell, code, table
from runner.settings import Settings, describe, variable

_INTRO = """\
# Settings

Each setting is an environment variable, read by the daemon when it starts and by every command. A
daemon that is running keeps its settings until it is restarted. An invalid value prevents the
start, and the message names the variable.

If hearth's own variable is not set, Ollama's variable of the same meaning is read, if there is
one. Durations are seconds or texts such as `5m` and `1h30m`; sizes are texts such as `8GiB` or
`500MB`. `hearth env` prints the settings of the current shell, and the variables that tell other
programs the daemon's address.
"""


def page() -> str:
    """The page."""
    aliases = {variable(item.name): item.metadata["alias"] or "" for item in fields(Settings)}
    rows = [
        (code(name), cell(doc), code(written(default)), code(aliases[name]))
        for name, doc, default in describe()
    ]
    return f"{_INTRO}\n{table(('variable', 'meaning', 'default', 'also read'), rows)}\n"


def written(default: str) -> str:
    """A default as one would write it into the environment."""
    return {"False": "0", "True": "1", "()": ""}.get(default, default.removesuffix(".0"))
