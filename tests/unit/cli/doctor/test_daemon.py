"""What doctor says of the daemon, by what its client says."""

from __future__ import annotations

from typing import Any

import pytest

from cli.doctor import daemon
from runner.client import Client, ClientError, ForeignServer, TlsFailed
from runner.settings import Settings

ABOUT = {"hearth": daemon.version("hearth"), "uptime_s": 61, "read_only": False,
         "store": str(Settings().models_dir)}  # fmt: skip


@pytest.mark.parametrize(
    ("error", "said", "mend"),
    [
        (ForeignServer("port 1 is held by a program of user nobody, not by your hearth. Set "
                       "HEARTH_HOST to another address"), "user nobody", "Set HEARTH_HOST"),
        (ClientError("http://x: wrong key. Set HEARTH_API_KEY to a valid key"), "wrong key",
         "Set HEARTH_API_KEY"),
        (TlsFailed("no trust"), "no trust", "hearth status"),
    ],
)  # fmt: skip
def test_whoever_answers_otherwise_is_a_problem(
    error: ClientError, said: str, mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(client: Client) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(daemon, "running", fail)
    (found,) = daemon.check_daemon(Settings())
    assert (found.area, found.level) == ("port", "problem")
    assert said in found.text
    assert mend in str(found.mend)


@pytest.mark.parametrize(
    ("change", "mend"),
    [
        ({"hearth": "0.0.1"}, "the next command starts the new one"),
        ({"store": "/elsewhere"}, "unset HEARTH_HOME"),
        ({"read_only": True}, "writable"),
        ({}, "None"),
    ],
)
def test_a_daemon_that_is_not_the_one_meant_is_a_warning(
    change: dict[str, Any], mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "running", lambda client: {**ABOUT, **change})
    (found,) = daemon.check_daemon(Settings())
    assert found.level == ("warning" if change else "ok")
    assert mend in str(found.mend)
