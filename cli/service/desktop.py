"""Adds hearth to the applications of a Linux desktop, and to its tray at login (Desktop Entry, Icon
Theme and Desktop Application Autostart Specifications).

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
_TRAY_TEXT = """\
[Desktop Entry]
Type=Application
Name=hearth in the tray
Comment=The models in memory
TryExec={program}
Exec={command}
Icon=hearth
Terminal=false
NoDisplay=true
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


def tray_path() -> Path:
    """What has the desktop show the tray's icon after login."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return config / "autostart" / f"{_NAME}-tray.desktop"


def install_tray(environment: Mapping[str, str]) -> None:
    """Have the desktop start hearth tray with these settings after login. Raises CliError."""
    write_private(tray_path(), tray_entry(environment))


def remove_entry() -> None:
    """Remove what install_entry and install_tray wrote."""
    for path in (entry_path(), _icon_path(), tray_path()):
        path.unlink(missing_ok=True)


def entry(environment: Mapping[str, str]) -> str:
    """The text of the desktop entry."""
    return _entry(_TEXT, "open", environment)


def tray_entry(environment: Mapping[str, str]) -> str:
    """The text of the entry that starts the tray."""
    return _entry(_TRAY_TEXT, "tray", environment)


def _entry(text: str, verb: str, environment: Mapping[str, str]) -> str:
    words = ["env", *(f"{name}={value}" for name, value in sorted(environment.items())),
             sys.executable, "-P", "-m", "cli.main", verb]  # fmt: skip
    command = " ".join(words[:1] + [_quoted(word) for word in words[1:]])
    return text.format(program=_escaped(sys.executable), command=command)


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
