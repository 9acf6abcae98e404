"""The page of all settings, from runner.settings."""

from __future__ import annotations

from dataclasses import fields

from docs.generator.markdown import cell, code, table
from runner.settings import Settings, describe, variable

_INTRO = """\
# Settings

Each setting is an environment variable of the daemon and of the command. The daemon reads them when
it starts, so stop it (`hearth stop` unloads models only; end the process or the service) before
changing one. A value that cannot be used stops the start, and the message names the variable.

Where hearth's own variable is not set, Ollama's variable of the same meaning counts, if there is
one. Durations are seconds or texts such as `5m` and `1h30m`; sizes are texts such as `8GiB` or
`500MB`. `hearth env` prints the settings in force and the variables from which other programs learn
the daemon's address.
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
