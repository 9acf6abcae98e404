"""hearth in the tray of a desktop: a StatusNotifierItem with a menu, over D-Bus.

Knows the daemon by HTTP and acts by the verbs of the command. It does not draw: the desktop does.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from cli.errors import CliError


def is_installed() -> bool:
    """Whether this system has a tray and the extra that it needs is installed."""
    return sys.platform.startswith("linux") and find_spec("dbus_fast") is not None


def require_tray() -> None:
    """Raises CliError, with what to do, where is_installed is False."""
    if is_installed():
        return
    if sys.platform.startswith("linux"):
        raise CliError("the tray needs dbus-fast: pip install 'hearth[desktop]'")
    raise CliError(f"the tray is not supported on {sys.platform}; hearth open opens the page")
