"""Tells who sits at this desktop that something long has ended. Never fails: where no desktop is,
nothing happens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

LONG_S = 60.0  # what ends sooner is still looked at
_LIMIT_S = 5.0
_ON_MACOS = "on run words\ndisplay notification (item 2 of words) with title (item 1 of words)\nend"
# Windows PowerShell's own name as the sender: a program without a shortcut has none. Template 5 has
# a line for the title and one for the text.
_ON_WINDOWS = r"""
[void][Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications,
    ContentType = WindowsRuntime]
$toast = [Windows.UI.Notifications.ToastNotificationManager]::GetTemplateContent(5)
$lines = $toast.GetElementsByTagName('text')
$lines.Item(0).InnerText = $env:HEARTH_TITLE
$lines.Item(1).InnerText = $env:HEARTH_TEXT
$sender = '{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}\WindowsPowerShell\v1.0\powershell.exe'
[Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier($sender).Show(
    [Windows.UI.Notifications.ToastNotification]::new($toast))
"""


@contextmanager
def told_of_pull(model: str, wanted: bool) -> Iterator[None]:
    """Show a notification, if one is wanted, once the block has ended after LONG_S and more, which
    pulls a model; none when it was cancelled. It is shown by a thread that ends within seconds."""
    began_s, text = time.monotonic(), ""
    try:
        yield
        text = f"{model} is ready"
    except Exception:
        text = f"{model} could not be pulled"
        raise
    finally:
        if wanted and text and time.monotonic() - began_s >= LONG_S:
            Thread(target=notify, args=("hearth", text), name="notification").start()


def notify(title: str, text: str) -> None:
    """Show a notification on the desktop of this user's session, where there is one. Takes some
    seconds where nobody answers."""
    import asyncio
    import html  # half a megabyte of entities, in a daemon that may never need them

    with suppress(Exception):
        if sys.platform == "darwin":
            _run(["osascript", "-e", _ON_MACOS, title, text])
        elif sys.platform == "win32":
            shown = {"HEARTH_TITLE": title, "HEARTH_TEXT": text}
            _run(["powershell.exe", "-NoProfile", "-Command", _ON_WINDOWS], shown)
        elif has_bus():
            body = html.escape(text)
            try:
                asyncio.run(asyncio.wait_for(_send(title, body), _LIMIT_S))
            except ImportError:
                _run(["notify-send", "--app-name=hearth", "--icon=hearth", "--", title, body])


def has_bus() -> bool:
    """Whether there is a bus of the session; dbus-fast would otherwise begin one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return bool(os.environ.get("DBUS_SESSION_BUS_ADDRESS")) or (
        runtime is not None and Path(runtime, "bus").is_socket()
    )


def _run(command: list[str], variables: Mapping[str, str] | None = None) -> None:
    environment = os.environ | dict(variables or {})
    if shutil.which(command[0]):
        subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False, env=environment)


async def _send(title: str, body: str) -> None:
    """Desktop Notifications Specification 1.2. body is markup."""
    from dbus_fast import Message
    from dbus_fast.aio import MessageBus

    bus = await MessageBus().connect()
    try:
        await bus.call(
            Message(
                destination="org.freedesktop.Notifications",
                path="/org/freedesktop/Notifications",
                interface="org.freedesktop.Notifications",
                member="Notify",
                signature="susssasa{sv}i",
                body=["hearth", 0, "hearth", title, body, [], {}, -1],
            )
        )
    finally:
        bus.disconnect()
