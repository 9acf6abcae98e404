"""hearth status, logs, shutdown and stop --all, at real daemons."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.process import has_ended
from tests.conftest import StartDaemon, install_models
from tests.integration.cli_process import (
    COMMAND,
    TIMEOUT_S,
    end,
    environment,
    free_address,
    hearth,
    of_daemon,
)

SLOW = {
    "model": "echo",
    "messages": [{"role": "user", "content": "<|slow|>" + "x" * 50}],
    "stream": True,
}


@pytest.fixture
def background(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of commands that start a daemon in the background, which is ended."""
    home = tmp_path / "home"
    install_models(home, ("echo",))
    yield environment(home, free_address(), HEARTH_NO_AUTOSTART="0")
    if (home / "state" / "daemon.json").exists():
        end(int(json.loads((home / "state" / "daemon.json").read_text())["pid"]))


def test_the_life_of_a_daemon_in_the_background(background: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "home" / "state" / "daemon.log"
    none = hearth(background, "status")
    assert none.returncode == 3
    assert none.stdout == f"no daemon is running at http://{background['HEARTH_HOST']}\n"
    assert "there is no log" in hearth(background, "logs").stderr
    assert hearth(background, "run", "ember", "", "--keepalive", "10m").returncode == 0
    shown = hearth(background, "status")
    assert shown.returncode == 0, shown.stderr
    rows = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
    assert rows["running"] == f"http://{background['HEARTH_HOST']}"
    assert rows["models"].startswith("ember:latest (")
    assert "MB with all workers" in rows["memory"]
    assert (rows["service"], rows["log"]) == ("no", str(log))
    told = hearth(background, "logs", "-n", "1")
    assert told.stdout == log.read_text().splitlines()[-1] + "\n"
    pid = rows["process"].split(",")[0]
    process = psutil.Process(int(pid))
    ended = hearth(background, "shutdown")
    assert ended.returncode == 0
    assert f"stopping the daemon (process {pid}); answers in progress have 30 s" in ended.stderr
    assert ended.stderr.endswith("the daemon has stopped\n")
    assert has_ended(process)
    assert "listens on" in hearth(background, "logs").stdout
    again = hearth(background, "shutdown")
    assert (again.returncode, "no daemon is running" in again.stderr) == (0, True)
    assert json.loads(hearth(background, "status", "--json").stdout) == {
        "running": False,
        "url": rows["running"],
    }


def test_shutdown_lets_an_answer_end_and_returns_when_the_daemon_is_gone(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.post("/v1/chat/completions", json={**SLOW, "stream": False, "max_tokens": 1})
        with client.stream("POST", "/v1/chat/completions", json=SLOW) as answer:
            lines = answer.iter_lines()
            next(lines)
            ending = subprocess.Popen([*COMMAND, "shutdown"], env=of_daemon(daemon), stderr=-1)
            rest = [line for line in lines if line]
    _, said = ending.communicate(timeout=TIMEOUT_S)
    assert (ending.returncode, rest[-1]) == (0, "data: [DONE]"), said
    assert daemon.process.poll() == 0


def test_a_health_check_asks_whether_requests_are_taken(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon)
    ready = hearth(env, "status", "--ready")
    assert (ready.returncode, ready.stdout) == (0, f"{daemon.url} is ready\n")
    assert hearth(env, "status", "--ready", "--json").returncode == 2
    with (
        daemon.client() as client,
        client.stream("POST", "/v1/chat/completions", json=SLOW) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        daemon.process.terminate()  # it listens no more, or says that it stops
        stopping = hearth(env, "status", "--ready")
        assert (stopping.returncode, stopping.stdout) == (3, f"{daemon.url} is not ready\n")
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert daemon.wait() == 0
    assert hearth(env, "status", "--ready").returncode == 3


def test_a_daemon_in_a_terminal_says_that_its_log_is_there(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    facts = json.loads(hearth(of_daemon(daemon), "status", "--json").stdout)
    assert (facts["pid"], facts["log"], facts["models"]) == (daemon.pid, None, [])
    refused = hearth(of_daemon(daemon), "logs")
    assert refused.returncode == 1
    assert f"the daemon (process {daemon.pid}) logs to where it was started" in refused.stderr


def test_the_log_is_followed(background: dict[str, str]) -> None:
    assert hearth(background, "list").returncode == 0
    command = [*COMMAND, "logs", "-f", "-n", "1"]
    with subprocess.Popen(command, env=background, stdout=-1, stderr=-1, text=True) as following:
        assert following.stdout is not None
        assert "listens on" in following.stdout.readline()
        assert hearth(background, "shutdown").returncode == 0
        assert "stopping" in following.stdout.readline()
        following.send_signal(signal.SIGINT)


class FarDaemon(BaseHTTPRequestHandler):
    """What a tunnel leads to: a daemon whose number is another process's here."""

    def do_GET(self) -> None:
        """Answers any path."""
        pid = self.server.victim  # type: ignore[attr-defined]
        about = {"hearth": "0", "name": "hearth", "pid": pid, "uptime_s": 1, "models": [],
                 "drain_timeout_s": 1, "store": "/far", "log": "/far/daemon.log"}  # fmt: skip
        body = json.dumps(about).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def test_a_number_that_is_another_process_here_is_left_alone(tmp_path: Path) -> None:
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), FarDaemon) as server,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as victim,
    ):
        server.victim = victim.pid  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        env = environment(tmp_path, f"127.0.0.1:{server.server_port}")
        refused = hearth(env, "shutdown")
        facts = json.loads(hearth(env, "status", "--json").stdout)
        alive = victim.poll() is None
        server.shutdown()
        thread.join()
        victim.communicate(b"\n")
    assert refused.returncode == 1
    assert "does not belong to this user on this machine" in refused.stderr
    assert (facts["pid"], facts["memory_bytes"]) == (victim.pid, None)
    assert alive


def test_stop_unloads_one_model_or_all(start_daemon: StartDaemon) -> None:
    env = of_daemon(start_daemon(names=("a", "b")))
    for name in ("a", "b"):
        assert hearth(env, "run", name, "", "--keepalive", "10m").returncode == 0
    for wrong in ((), ("a", "--all")):
        refused = hearth(env, "stop", *wrong)
        assert (
            refused.returncode,
            "the name of a loaded model, --all or --daemon" in refused.stderr,
        ) == (
            2,
            True,
        )
    stopped = hearth(env, "stop", "--all")
    assert stopped.returncode == 0, stopped.stderr
    assert sorted(stopped.stdout.removeprefix("unloaded ").strip().split(", ")) == [
        "a:latest",
        "b:latest",
    ]
    assert json.loads(hearth(env, "ps", "--json").stdout) == {"models": []}
    assert hearth(env, "stop", "--all").stdout == "no model is in memory\n"
    nobody = {**env, "HEARTH_HOST": free_address(), "HEARTH_NO_AUTOSTART": "0"}
    assert hearth(nobody, "stop", "--all").stdout == "no model is in memory\n"


def test_keys_do_not_lock_out_the_command_that_starts_the_daemon(
    background: dict[str, str],
) -> None:
    assert hearth(background, "key", "add", "other").returncode == 0
    assert hearth(background, "shutdown").returncode == 0
    listed = hearth(background, "list")
    assert listed.returncode == 0, listed.stderr
    assert hearth(background, "shutdown").returncode == 0


@pytest.fixture
def systemd(tmp_path: Path) -> dict[str, str]:
    """Variables with which commands find a systemd: its service's process is what the file pid
    says, and it has no session while the file broken exists."""
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {
        "systemctl": f'[ ! -e {tmp_path}/broken ] || {{ echo "no bus" >&2; exit 1; }}\n'
        f'[ "$2" != show ] || cat {tmp_path}/pid\n',
        "journalctl": 'echo "journal: $@"\n',
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    (tmp_path / "pid").write_text("0\n")
    path = f"{folder}:{os.environ['PATH']}"
    return {"PATH": path, "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is of Linux")
def test_installing_a_service_that_cannot_be_leaves_the_daemon_alone(
    start_daemon: StartDaemon, systemd: dict[str, str], tmp_path: Path
) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon, **systemd)
    (tmp_path / "broken").touch()
    refused = hearth(env, "service", "install")
    assert (refused.returncode, "no user session" in refused.stderr) == (1, True)
    (tmp_path / "broken").unlink()
    (tmp_path / "config").touch()
    refused = hearth(env, "service", "install")
    assert (refused.returncode, "cannot be written" in refused.stderr) == (1, True)
    assert hearth(env, "status").returncode == 0
    (tmp_path / "config").unlink()
    assert hearth(env, "service", "install").returncode == 0
    assert daemon.wait() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is of Linux")
def test_a_service_is_known_as_one(
    start_daemon: StartDaemon, systemd: dict[str, str], tmp_path: Path
) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon, **systemd)
    (tmp_path / "pid").write_text(f"{daemon.pid}\n")
    unit = tmp_path / "config" / "systemd" / "user" / "hearth.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    assert json.loads(hearth(env, "status", "--json").stdout)["service"] == "systemd"
    ended = hearth(env, "shutdown")
    assert daemon.wait() == 0
    assert "it is a service, which systemd starts again at the next login" in ended.stderr
    shown = hearth(env, "logs", "-f", "-n", "5").stdout
    assert shown == "journal: --user --unit hearth.service --output cat -f -n 5\n"


def test_messages_name_the_variable_that_gave_the_address(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        taken = f"127.0.0.1:{held.getsockname()[1]}"
        env = environment(tmp_path, "", OLLAMA_HOST=taken)
        refused = hearth(env, "serve")
    assert (refused.returncode, f"{taken} (OLLAMA_HOST) is in use by" in refused.stderr) == (
        69,
        True,
    )
    unanswered = hearth(env, "list")
    assert f"no hearth daemon answers at http://{taken} (OLLAMA_HOST)" in unanswered.stderr
    own = hearth({**env, "HEARTH_HOST": taken}, "list")
    assert f"no hearth daemon answers at http://{taken} (HEARTH_HOST)" in own.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        other = f"127.0.0.1:{server.server_port}"
        foreign = hearth({**env, "OLLAMA_HOST": other}, "list")
        server.shutdown()
        thread.join()
    assert f"answers at http://{other} (OLLAMA_HOST), not hearth. Set HEARTH_HOST" in foreign.stderr
