"""The verbs: one module each, imported when the verb is used. Its `command` is the verb.

The first line of a module, "hearth NAME, ALIAS: What it does.", is what `hearth --help` and
completion say of it, so that they import no verb.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Help begins with these; the others follow by name.
_COMMON = ("run", "list", "show", "pull", "push", "create", "adapter", "check", "render",
           "parameters", "cp", "rm", "ps", "stop", "login", "logout", "key", "mcp", "import",
           "du", "gc", "cache", "fsck", "doctor", "open", "tray", "serve", "status", "logs",
           "shutdown", "service", "cluster", "bench", "eval", "env", "completion")  # fmt: skip
_FIRST_LINE = re.compile(r'"""hearth (?P<name>\w+)(, (?P<alias>\w+))?: (?P<help>.+?)\.(""")?\n')


@dataclass(frozen=True, slots=True)
class Verb:
    """What is known of a verb without importing it."""

    name: str
    alias: str | None
    help: str
    module: str


def _read(path: Path) -> Verb:
    with path.open(encoding="utf-8") as file:
        line = file.readline()
    found = _FIRST_LINE.fullmatch(line)
    if found is None:
        raise ImportError(f'{path} must begin with """hearth NAME: What it does.')
    return Verb(found["name"], found["alias"], found["help"], f"{__name__}.{path.stem}")


def _all() -> dict[str, Verb]:
    folder = Path(__file__).parent
    verbs = {verb.name: verb for path in folder.glob("[a-z]*.py") for verb in [_read(path)]}
    order = [*(name for name in _COMMON if name in verbs), *sorted(verbs.keys() - {*_COMMON})]
    return {name: verbs[name] for name in order}


VERBS = _all()
ALIASES = {verb.alias: verb.name for verb in VERBS.values() if verb.alias is not None}
