"""The page of all settings, from runner.settings."""

from __future__ import annotations

from dataclasses import fields

from docs.generator.markdown import cell, code, table
from runner.settings import Settings, describe, variable

_INTRO = """\
# Settings

Each setting is an environment variable and a name in the file `config.toml`. The daemon reads them
when it starts, and every command reads them too. A running daemon keeps its settings until it is
restarted. An invalid value prevents the start, and the message says where it was set.

The order of precedence is: an option of the command, the variable, Ollama's variable of the same
meaning if there is one, the file, the default. `hearth env --explain` shows for each setting where
its value comes from and what it overrides. `hearth env` prints the settings, and the variables that
tell other programs the daemon's address. Durations are seconds, or strings such as `5m` and
`1h30m`; sizes are strings such as `8GiB` or `500MB`.

## The file

`config.toml` is in `HEARTH_HOME` if that is set, otherwise in `~/.config/hearth` (Linux; see
`XDG_CONFIG_HOME`) or `~/Library/Application Support/hearth` (macOS); `HEARTH_CONFIG` names another
file. The name of a setting is that of its variable without `HEARTH_`, in lower case:

```toml
host = "127.0.0.1:4328"
keep_alive = "10m"                       # or a number of seconds
num_parallel = 8
offline = true                           # or 1
origins = ["https://pages.example.com"]  # or a string with commas
models = "models"                        # a folder beside this file
```

The daemon and every command report an error with the file, the line and what to do if a name is
unknown, a value has the wrong type, the file is not TOML, other users can write to it, or they can
read it and it contains `api_key`. `config` cannot be set in the file.

## All settings
"""


def page() -> str:
    """The page."""
    aliases = {variable(item.name): item.metadata["alias"] or "" for item in fields(Settings)}
    rows = [
        (code(name), cell(doc), code(default), code(aliases[name]))
        for name, doc, default in describe()
    ]
    return f"{_INTRO}\n{table(('variable', 'meaning', 'default', 'also read'), rows)}\n"
