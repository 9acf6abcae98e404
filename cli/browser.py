"""Shows a page in its own window if a Chromium is installed, otherwise in the default browser.

Knows no daemon.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cli.errors import CliError
from runner.programs import DETACHED_OPTIONS

_IN_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
            "brave-browser", "microsoft-edge", "microsoft-edge-stable", "vivaldi")  # fmt: skip
_ON_MACOS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
_ON_WINDOWS = (r"Google\Chrome\Application\chrome.exe", r"Microsoft\Edge\Application\msedge.exe")
_FAILS_WITHIN_S = 1.0


def show(url: str, own_window: bool = True) -> None:
    """Show url. own_window: without tabs and address bar, where that can be had; BROWSER, which
    names a browser that the user prefers, wins. Raises CliError where there is nothing to show it
    with."""
    if not _has_desktop():
        raise CliError(f"there is no desktop here to show a page on; in a browser: {url}")
    commands: list[list[str]] = []
    if not os.environ.get("BROWSER"):
        # webbrowser takes an xdg-open that has ended already for one that failed.
        opener = [["xdg-open", url]] if sys.platform.startswith("linux") else []
        commands = [*(_window_commands(url) if own_window else ()), *opener]
    if not any(map(_starts, commands)) and not webbrowser.open(url):
        raise CliError(f"no browser was found; in one of yours: {url}")


def _has_desktop() -> bool:
    named = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return named or not sys.platform.startswith("linux")


def _window_commands(url: str) -> Iterator[list[str]]:
    """The commands that would open a window, best first."""
    if sys.platform == "darwin":
        for name in _ON_MACOS:
            if Path("/Applications", f"{name}.app").exists():
                yield ["open", "-na", name, "--args", f"--app={url}"]
        return
    found = [shutil.which(name) for name in _IN_PATH]
    if sys.platform == "win32":
        folders = (os.environ.get(name, "") for name in ("PROGRAMFILES", "PROGRAMFILES(X86)"))
        paths = [Path(folder, name) for folder in folders for name in _ON_WINDOWS]
        found = [str(path) for path in paths if path.is_file()]
    for program in filter(None, found):
        yield [program, f"--app={url}"]


def _starts(command: list[str]) -> bool:
    """Start a browser. False: it ended at once with a fault, as Chromium does for root."""
    nowhere = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, stdin=nowhere, stdout=nowhere, stderr=nowhere, **DETACHED_OPTIONS
        )
    except OSError:
        return False
    with suppress(subprocess.TimeoutExpired):
        return process.wait(_FAILS_WITHIN_S) == 0  # 0: a window of one that runs already
    return True
