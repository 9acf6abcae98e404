"""hearth cluster: what is sent to the daemon, and what is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.main import execute


class Daemon:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def cluster(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((path, body))
        return {"model": body["model"], "replicas": 1}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    started = Daemon()
    monkeypatch.setattr("cli.connection.connect", lambda: started)
    return started


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of the processes that know Ray."""
    calls: list[list[str]] = []

    def call(command: list[str]) -> int:
        calls.append(command[4:])
        return 0

    monkeypatch.setattr("subprocess.call", call)
    return calls


def test_what_is_not_given_is_not_sent(daemon: Daemon) -> None:
    assert execute(["cluster", "deploy", "m"]) == 0
    assert execute(["cluster", "deploy", "m", "--replicas", "2..8", "--gpus", "0.5"]) == 0
    assert daemon.asked == [
        ("/deploy", {"model": "m"}),
        ("/deploy", {"model": "m", "min_replicas": 2, "max_replicas": 8, "gpus": 0.5}),
    ]


def test_scale_wants_to_know_how_many(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["cluster", "scale", "m"]) == 2
    assert "hearth cluster scale m needs --replicas" in capsys.readouterr().err
    assert execute(["cluster", "scale", "m", "--replicas", "3"]) == 0
    assert daemon.asked == [("/scale", {"model": "m", "min_replicas": 3, "max_replicas": 3})]


def test_a_machine_has_whole_gpus(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["cluster", "start", "--head", "--gpus", "0.5"]) == 2
    assert "--gpus 0.5: use a whole number" in capsys.readouterr().err
    assert execute(["cluster", "start", "--head", "--gpus", "2", "--cpus", "4"]) == 0
    assert started == [["start", "--head", "--cpus", "4", "--gpus", "2"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "--replicas", "3"], "hearth cluster status takes no --replicas"),
        (["scale", "m", "--cpus", "3"], "takes no --cpus; it is for start, deploy"),
        (["stop", "m"], "hearth cluster stop takes no model (got 'm')"),
        (["undeploy"], "hearth cluster undeploy needs a model"),
        (["apply"], "needs the path of a cluster.yaml"),
        (["start"], "needs --head or --address HOST:PORT"),
        (["start", "--head", "--cpus", "-1"], "--cpus -1: give 0 or more"),
        (["start", "--address", "10.0.0.1:1", "--port", "2"], "--port needs --head"),
        (["deploy", "m", "--replicas", "two"], "--replicas 'two': write a number"),
    ],
)
def test_what_an_action_does_not_take_is_refused(
    arguments: list[str],
    said: str,
    daemon: Daemon,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["cluster", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert (daemon.asked, started) == ([], [])


def test_a_file_deploys_what_it_lists(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("models:\n- {model: m, replicas: 2..8}\n- {model: n, cpus: 4}\n")
    assert execute(["cluster", "apply", str(path)]) == 0
    assert daemon.asked == [
        ("/deploy", {"model": "m", "min_replicas": 2, "max_replicas": 8}),
        ("/deploy", {"model": "n", "cpus": 4}),
    ]
