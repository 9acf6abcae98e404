"""hearth among the applications of a Linux desktop (Desktop Entry and Icon Theme Specifications).

Knows the files, not what opens the page.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cli.service.manager import write_private

_NAME = "hearth"
_TEXT = """\
[Desktop Entry]
Type=Application
Name=hearth
GenericName=Local language models
Comment=Chat with language models on this machine
TryExec={program}
Exec={command}
Icon=hearth
Terminal=false
Categories=Utility;
Keywords=LLM;AI;chat;model;
"""


def has_entries() -> bool:
    """Whether applications of this system have desktop entries."""
    return sys.platform.startswith("linux")


def entry_path() -> Path:
    """The desktop entry of this user."""
    return _data_home() / "applications" / f"{_NAME}.desktop"


def install_entry(environment: Mapping[str, str]) -> None:
    """Have the desktop show hearth, which opens the page of the daemon with these settings. Raises
    CliError."""
    write_private(entry_path(), entry(environment))
    write_private(_icon_path(), Path(__file__).with_name(f"{_NAME}.svg").read_text())


def remove_entry() -> None:
    """Remove what install_entry wrote."""
    for path in (entry_path(), _icon_path()):
        path.unlink(missing_ok=True)


def entry(environment: Mapping[str, str]) -> str:
    """The text of the desktop entry."""
    words = ["env", *(f"{name}={value}" for name, value in sorted(environment.items())),
             sys.executable, "-P", "-m", "cli.main", "open"]  # fmt: skip
    command = " ".join(words[:1] + [_quoted(word) for word in words[1:]])
    return _TEXT.format(program=_escaped(sys.executable), command=command)


def _quoted(word: str) -> str:
    """A word of Exec: quoted, which has escapes of its own, within a string of the file."""
    for mark in '\\"`$':
        word = word.replace(mark, f"\\{mark}")
    return _escaped(f'"{word.replace("%", "%%")}"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def _icon_path() -> Path:
    return _data_home() / "icons" / "hicolor" / "scalable" / "apps" / f"{_NAME}.svg"


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
