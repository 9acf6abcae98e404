"""hearth tray in the panel of Xfce, on an X server without a screen: Debian's xvfb, xfce4-panel,
xdotool and imagemagick. TRAY_PICTURE names a file for the picture of the menu."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("dbus_fast")

from tests.conftest import StartDaemon
from tests.integration.cli_process import COMMAND, TIMEOUT_S, of_daemon
from tests.session_bus import session_bus

PROGRAMS = ("Xvfb", "xfce4-panel", "xdotool", "import", "convert", "dbus-daemon")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")

# A panel in the upper left corner that has the tray only
PANEL = """\
<?xml version="1.0" encoding="UTF-8"?>
<channel name="xfce4-panel" version="1.0">
  <property name="configver" type="int" value="2"/>
  <property name="panels" type="array">
    <value type="int" value="1"/>
    <property name="panel-1" type="empty">
      <property name="position" type="string" value="p=0;x=150;y=16"/>
      <property name="length" type="uint" value="100"/>
      <property name="size" type="uint" value="32"/>
      <property name="position-locked" type="bool" value="true"/>
      <property name="plugin-ids" type="array"><value type="int" value="1"/></property>
    </property>
  </property>
  <property name="plugins" type="empty">
    <property name="plugin-1" type="string" value="systray"/>
  </property>
</channel>
"""


@contextmanager
def started(*command: str, env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output, subprocess.Popen(command, env=env, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for(what: str, condition: Callable[[], object]) -> None:
    """Wait for what no event tells of."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S:g} s: {what}"
        time.sleep(0.1)


class Desktop:
    """A pointer, a keyboard, and a look at the screen."""

    def __init__(self, env: Mapping[str, str], screen: Path) -> None:
        self._env = env
        self._screen = screen

    def _run(self, *words: str) -> str:
        done = subprocess.run(words, env=self._env, capture_output=True, timeout=TIMEOUT_S)
        return done.stdout.decode(errors="replace")

    def colours(self, place: str) -> int:
        """How many there are in a part of the screen."""
        self._run("import", "-window", "root", "-crop", "300x240+0+0", "+repage", str(self._screen))
        told = self._run("convert", str(self._screen), "-crop", place, "-format", "%k", "info:")
        return int(told or 0)

    def press(self, *keys: str) -> None:
        self._run("xdotool", "key", "--delay", "200", *keys)

    def open_menu(self) -> None:
        """The one of the icon, which is the only one."""
        wait_for("the icon on the screen", lambda: self.colours("28x28+0+2") > 20)
        self._run("xdotool", "mousemove", "14", "16", "click", "3")
        wait_for("the menu", lambda: self.colours("100x100+20+60") > 20)


def test_xfce_shows_the_menu_and_what_is_chosen_happens(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    with daemon.client() as client, session_bus_of(tmp_path) as (bus, home), ExitStack() as stack:
        env = of_daemon(daemon, DBUS_SESSION_BUS_ADDRESS=bus, HOME=str(home))
        display, log = _display(stack, env, tmp_path), tmp_path / "log"
        env |= {"DISPLAY": display, "XDG_CONFIG_HOME": str(home / ".config")}
        desktop = Desktop(env, tmp_path / "screen.png")
        stack.enter_context(started(*COMMAND, "tray", env=env, log=log))
        for model in ("ember", "echo"):
            _load(client, model)
        for _ in range(2):  # the second panel as after a crash of the first
            with started("xfce4-panel", "--disable-wm-check", env=env, log=log):
                desktop.open_menu()
                before = len(_loaded(client))
                if before == 2 and "TRAY_PICTURE" in os.environ:
                    shutil.copy(tmp_path / "screen.png", os.environ["TRAY_PICTURE"])
                desktop.press("Down", "Return")  # the first line that can be chosen
                wait_for("a model less", lambda n=before: len(_loaded(client)) == n - 1)
        assert _loaded(client) == []


@contextmanager
def session_bus_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """A bus whose services have a home of their own, and that home."""
    home = folder / "user"
    place = home / ".config/xfce4/xfconf/xfce-perchannel-xml"
    place.mkdir(parents=True)
    (place / "xfce4-panel.xml").write_text(PANEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            patch.delenv(name, raising=False)
        with session_bus() as address:
            yield address, home


def _display(stack: ExitStack, env: Mapping[str, str], folder: Path) -> str:
    """An X server of its own, at a display that it chooses."""
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "640x480x24", "-nolisten", "tcp"]
    server = stack.enter_context(
        subprocess.Popen(command, env=env, pass_fds=[write], stderr=subprocess.DEVNULL)
    )
    stack.callback(server.terminate)
    os.close(write)
    with os.fdopen(read) as told:
        return f":{told.readline().strip()}"


def _load(client: httpx.Client, model: str) -> None:
    loaded = client.post("/api/generate", json={"model": model, "keep_alive": -1, "stream": False})
    assert loaded.status_code == 200, loaded.text


def _loaded(client: httpx.Client) -> list[str]:
    return [model["name"] for model in client.get("/api/ps").json()["models"]]
