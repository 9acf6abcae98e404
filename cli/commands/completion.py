"""hearth completion: Complete commands and the names of models in the shell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.errors import USAGE, CliError
from cli.terminal import status

_SCRIPTS = Path(__file__).parents[1] / "shells"


def command(
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None,
        typer.Argument(metavar="[bash|zsh|fish]", help="The shell; $SHELL by default"),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Install it where the shell looks for it")
    ] = False,
    everywhere: Annotated[
        bool,
        typer.Option("--everywhere", help="Install it for each shell that has a folder for it"),
    ] = False,
) -> None:
    """Complete commands, options, and the names of models, keys and parameters in the shell.

    Without an option the script is printed, for use in a shell's startup file:
    source <(hearth completion bash)
    """
    if everywhere:
        for name, place in _places().items():
            if place.parent.is_dir():
                _install(name, place)
        return
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in _places():
        raise CliError(f"there is no completion for {chosen or 'this shell'}: name bash, zsh or "
                       "fish", USAGE)  # fmt: skip
    if not install:
        print(_script(chosen), end="")
        return
    place = _places()[chosen]
    _install(chosen, place)
    if chosen == "zsh":
        status(f"~/.zshrc needs, before compinit: fpath=({place.parent} $fpath)")


def _places() -> dict[str, Path]:
    """Where the shells look for a user's completions; zsh only where its fpath says so."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "hearth",
        "zsh": Path.home() / ".zfunc" / "_hearth",
        "fish": config / "fish" / "completions" / "hearth.fish",
    }


def _script(shell: str) -> str:
    names = {"bash": "hearth.bash", "zsh": "_hearth", "fish": "hearth.fish"}
    return (_SCRIPTS / names[shell]).read_text()


def _install(shell: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(_script(shell))
    status(f"completion for {shell}: {place}")
