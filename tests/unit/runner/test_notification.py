"""Notifications: when there is one, and what a desktop gets."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runner import notification
from tests.session_bus import notification_server, session_bus

BUS = "DBUS_SESSION_BUS_ADDRESS"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would be shown; every pull takes long."""
    found: list[str] = []
    monkeypatch.setattr(notification, "notify", lambda _title, text: found.append(text))
    monkeypatch.setattr(notification, "LONG_S", 0.0)
    return found


def pull(wanted: bool = True, error: BaseException | None = None) -> None:
    with notification.told_of_pull("a:b", wanted):
        if error is not None:
            raise error
    _settle()


def _settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "notification":
            thread.join()


def test_a_long_pull_is_told_of_however_it_ends(shown: list[str]) -> None:
    pull()
    with pytest.raises(ValueError, match="no"):
        pull(error=ValueError("no"))
    _settle()
    assert shown == ["a:b is ready", "a:b could not be pulled"]


def test_nothing_is_told_of_a_short_one_a_cancelled_one_or_if_not_wanted(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(wanted=False)
    for error in (KeyboardInterrupt(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            pull(error=error)
    monkeypatch.setattr(notification, "LONG_S", 60.0)
    pull()
    _settle()
    assert shown == []


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="needs dbus-daemon")
def test_a_notification_server_gets_it_with_its_marks_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("dbus_fast")
    with session_bus() as address:
        monkeypatch.setenv(BUS, address)
        notification.notify("hearth", "nobody is there yet, which is no error")
        with notification_server(address) as server:
            assert server.stdout is not None
            notification.notify("hearth", "<b>a&b is ready")
            got = json.loads(server.stdout.readline())
    assert got == ["susssasa{sv}i", "hearth", 0, "hearth", "hearth", "&lt;b&gt;a&amp;b is ready",
                   [], {}, -1]  # fmt: skip


def test_without_the_library_notify_send_is_asked(tmp_path: Path) -> None:
    program, told = tmp_path / "notify-send", tmp_path / "told"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {told}\n')
    program.chmod(0o755)
    script = (
        "import sys; sys.modules['dbus_fast'] = None; from runner.notification import notify; "
        "notify('hearth', '-x is ready')"
    )
    env = {"PATH": str(tmp_path)}
    for bus in ({}, {BUS: "unix:path=/nowhere"}):
        assert not told.exists()  # without a session nobody is asked
        subprocess.run(
            [sys.executable, "-c", script], env=env | bus, cwd=os.getcwd(), check=True, timeout=60
        )
    assert told.read_text().splitlines() == [
        "--app-name=hearth", "--icon=hearth", "--", "hearth", "-x is ready",
    ]  # fmt: skip
