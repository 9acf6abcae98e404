"""Completion offers names, and is silent when it cannot."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from cli import connection
from cli.main import app


class Daemon:
    """A client of a daemon with two models, one of them in memory."""

    def tags(self) -> list[dict[str, Any]]:
        return [{"name": "zephyr"}, {"name": "ember"}]

    def ps(self) -> list[dict[str, Any]]:
        return [{"name": "zephyr"}]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "connect", lambda **options: Daemon())


def offered(*args: str) -> list[str]:
    """What completion offers for the last word."""
    shell = ShellComplete(app, {}, "hearth", "_HEARTH_COMPLETE")
    return [item.value for item in shell.get_completions(list(args[:-1]), args[-1])]


def test_verbs_are_offered_without_a_daemon() -> None:
    assert offered("ser") == ["serve", "service"]
    assert "--json" in offered("list", "--")


@pytest.mark.usefixtures("daemon")
def test_installed_names_are_offered_in_order() -> None:
    assert offered("show", "") == ["ember", "zephyr"]
    assert offered("show", "em") == ["ember"]
    assert offered("show", "x") == []


@pytest.mark.usefixtures("daemon")
def test_only_loaded_models_are_offered_to_stop() -> None:
    assert offered("stop", "") == ["zephyr"]


def test_without_a_daemon_nothing_is_offered_and_none_is_started(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HEARTH_HOST", f"127.0.0.1:{unused.getsockname()[1]}")
        assert offered("show", "") == []
    assert capfd.readouterr() == ("", "")
