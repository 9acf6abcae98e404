"""Shell completion of hearth for bash, zsh and fish: click's scripts and where they go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import get_completion_class

from cli.errors import USAGE, CliError

if TYPE_CHECKING:
    import click

_SHELLS = ("bash", "zsh", "fish")


def script(app: click.Command) -> str:
    """The completion script for the user's shell. Raises CliError for an unknown shell."""
    completion = get_completion_class(_shell())
    assert completion is not None
    return completion(app, {}, "hearth", "_HEARTH_COMPLETE").source()


def install(app: click.Command) -> str:
    """Write the script where the user's shell reads it; says where. Raises CliError, OSError."""
    shell, text = _shell(), script(app)
    if shell == "fish":
        path = Path.home() / ".config" / "fish" / "completions" / "hearth.fish"
    else:
        from runner.settings import load

        path = load().data_dir.absolute() / f"completion.{shell}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if shell != "fish":
        _source(path, Path.home() / f".{shell}rc", shell)
    return f"{shell} completion installed in {path}; it takes effect in new shells"


def _shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in _SHELLS:
        raise CliError(
            f"no completion for the shell {name!r}: set SHELL to one of {', '.join(_SHELLS)}", USAGE
        )
    return name


def _source(path: Path, rc: Path, shell: str) -> None:
    """Have the shell's start-up file read path, once."""
    line = f"[ -f '{path}' ] && . '{path}'"
    if shell == "zsh":  # its script needs the completion system
        line = f"autoload -Uz compinit && compinit; {line}"
    known = rc.read_text() if rc.exists() else ""
    if line not in known:
        with rc.open("a") as file:
            file.write(f"\n{line}\n" if known and not known.endswith("\n") else f"{line}\n")
