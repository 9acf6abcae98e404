"""The page of all settings, from runner.settings."""

from __future__ import annotations

from dataclasses import fields

from docs.generator.markdown import cell, code, table
from runner.settings import Settings, describe, variable

_INTRO = """\
# Settings

Each setting is an environment variable and a name in the file `config.toml`, read by the daemon
when it starts and by every command. A daemon that is running keeps its settings until it is
restarted. An invalid value prevents the start, and the message says where it stands.

An option of a command comes first, then the variable, then Ollama's variable of the same meaning
where there is one, then the file, then the default. `hearth env --explain` shows of each setting
which it was and what that overrides. `hearth env` prints the settings, and the variables that tell
other programs the daemon's address. Durations are seconds or texts such as `5m` and `1h30m`; sizes
are texts such as `8GiB` or `500MB`.

## The file

`config.toml` is looked for in `HEARTH_HOME`, and without that in `~/.config/hearth` (Linux; where
`XDG_CONFIG_HOME` says) or `~/Library/Application Support/hearth` (macOS); `HEARTH_CONFIG` names
another file. A setting is its variable without `HEARTH_`, in small letters:

```toml
host = "127.0.0.1:4328"
keep_alive = "10m"                       # or a number of seconds
num_parallel = 8
offline = true                           # or 1
origins = ["https://pages.example.com"]  # or a text with commas
models = "models"                        # a folder beside this file
```

An unknown name, a value of another type, a file that is not TOML or that other users may write, and
one with `api_key` that they may read, are errors with the file, the line and what to do, for the
daemon and for every command. `config` is not a setting of the file.

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
