"""The daemon started by its socket, and hearth open, with real processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from cli.daemon import COMMAND as DAEMON
from tests.conftest import install_models
from tests.echo_models import echo_gguf
from tests.integration.cli_process import TIMEOUT_S, end, environment, free_address, hearth
from tests.session_bus import notification_server, session_bus

ACTIVATE = "systemd-socket-activate"
IDLE_BYTES = 60 << 20


@pytest.fixture
def background(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of commands that start a daemon in the background, which is ended."""
    home = tmp_path / "home"
    install_models(home, ("echo",))
    yield environment(home, free_address(), HEARTH_NO_AUTOSTART="0")
    if (home / "state" / "daemon.json").exists():
        end(int(json.loads((home / "state" / "daemon.json").read_text())["pid"]))


@pytest.mark.skipif(shutil.which(ACTIVATE) is None, reason=f"needs {ACTIVATE} of systemd")
def test_no_process_runs_until_the_first_request(tmp_path: Path) -> None:
    install_models(tmp_path, ("echo",))
    address = free_address()
    env = environment(tmp_path, "127.0.0.1:1")  # what systemd listens at counts
    names = [word for name in env for word in ("-E", name)]
    command = [ACTIVATE, "-l", address, "--fdname", "hearth.socket", *names, *DAEMON]
    with subprocess.Popen(command, env=env, stderr=-1, text=True) as process:
        assert process.stderr is not None
        assert f"Listening on {address}" in process.stderr.readline()
        before = psutil.Process(process.pid)
        assert (before.name()[:15], list(before.children())) == (ACTIVATE[:15], [])
        with httpx.Client(base_url=f"http://{address}", timeout=TIMEOUT_S) as client:
            assert client.get("/ready").status_code == 200  # waits for the start
            assert before.memory_info().rss <= IDLE_BYTES
            about = client.get("/api/version").json()
            assert (about["name"], about["pid"]) == ("hearth", process.pid)
            asked = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
            answer = client.post("/v1/chat/completions", json=asked).json()
        assert answer["choices"][0]["message"]["content"] == "hello"
        here = env | {"HEARTH_HOST": address}
        assert json.loads(hearth(here, "status", "--json").stdout)["pid"] == process.pid
        ended = hearth(here, "stop", "--daemon")
        assert ended.stderr.endswith("the daemon has stopped\n"), ended.stderr
        said = process.stderr.read()
    assert process.returncode == 0, said
    assert f"listens on http://{address}" in said


def test_what_waits_when_the_daemon_ends_is_answered_by_the_next(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listener:
        port = listener.getsockname()[1]
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port)) as waiting:
                waiting.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
                process = _activated(listener, environment(tmp_path, f"127.0.0.1:{port}"))
                with process:
                    assert waiting.recv(64).startswith(b"HTTP/1.1 200")
                    process.terminate()
                assert process.returncode == 0


def _activated(
    listener: socket.socket, env: dict[str, str], command: tuple[str, ...] = DAEMON
) -> subprocess.Popen[str]:
    """A daemon that gets the socket as systemd passes it on."""
    script = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3); "
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    fd = listener.fileno()
    words = [sys.executable, "-c", script, str(fd), *command]
    return subprocess.Popen(words, env=env, pass_fds=[fd], stderr=-3, text=True)


def test_only_systemd_at_the_port_is_no_daemon(tmp_path: Path) -> None:
    """Asking would start it."""
    units, bins = tmp_path / "systemd" / "user", tmp_path / "bin"
    units.mkdir(parents=True)
    bins.mkdir()
    systemctl = bins / "systemctl"
    systemctl.write_text('#!/bin/sh\n[ "$3" = --property=MainPID ] && echo 0 || echo listening\n')
    systemctl.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        (units / "hearth.service").touch()
        (units / "hearth.socket").write_text(f"[Socket]\nListenStream={address}\n")
        env = environment(tmp_path, address, XDG_CONFIG_HOME=str(tmp_path))
        env["PATH"] = f"{bins}:{env['PATH']}"
        assert hearth(env, "status").returncode == 3
        assert hearth(env, "stop", "--all").stdout == "no model is in memory\n"
        assert "no daemon is running" in hearth(env, "shutdown").stderr
        assert hearth(env, "service").stdout.endswith("starts with the first request\n")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def _program(folder: Path, name: str, told: Path, code: int = 0) -> str:
    """A program that writes its arguments to told and ends with code."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $@" >> {told}\nexit {code}\n')
    path.chmod(0o755)
    return str(path)


def test_the_page_opens_in_a_window_and_the_daemon_is_started(
    background: dict[str, str], tmp_path: Path
) -> None:
    told, bins = tmp_path / "told", tmp_path / "bin"
    url = f"http://{background['HEARTH_HOST']}/"
    env = background | {"PATH": str(bins), "DISPLAY": ":0"}
    _program(bins, "xdg-open", told)
    assert hearth(env, "open").returncode == 0
    _program(bins, "chromium", told, code=1)
    assert hearth(env, "open").returncode == 0
    _program(bins, "chromium", told)
    assert hearth(env, "open").returncode == 0
    assert hearth(env, "open", "--tab").returncode == 0
    own = _program(bins, "mine", told)
    assert hearth(env | {"BROWSER": own}, "open").returncode == 0
    assert told.read_text().splitlines() == [
        f"xdg-open {url}",
        f"chromium --app={url}",
        f"xdg-open {url}",
        f"chromium --app={url}",
        f"xdg-open {url}",
        f"mine {url}",
    ]
    nowhere = hearth(background, "open")
    assert (nowhere.returncode, f"in a browser: {url}" in nowhere.stderr) == (1, True)
    assert httpx.get(f"{url}ready", timeout=TIMEOUT_S).status_code == 200


def test_stop_takes_one_of_model_all_and_daemon(tmp_path: Path) -> None:
    env = environment(tmp_path, free_address())
    assert hearth(env, "stop", "--all", "--daemon").returncode == 2
    none = hearth(env, "stop", "--daemon")
    assert (none.returncode, "no daemon is running" in none.stderr) == (0, True)


LONG_PULLS = (
    "from runner import notification; notification.LONG_S = 0; "
    "from runner.server.daemon import main; raise SystemExit(main())"
)


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="needs dbus-daemon")
def test_the_desktop_hears_of_pulls_by_others_than_the_command(tmp_path: Path) -> None:
    pytest.importorskip("dbus_fast")
    weights = tmp_path / "tiny.gguf"
    weights.write_bytes(echo_gguf())
    with (
        session_bus() as bus,
        notification_server(bus) as server,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        path = os.environ.get("PYTHONPATH", "")
        env = environment(tmp_path / "home", address, DBUS_SESSION_BUS_ADDRESS=bus, PYTHONPATH=path)
        command = (sys.executable, "-P", "-c", LONG_PULLS)
        with _activated(listener, env, command) as process:
            for agent in ("hearth", "another"):
                pulled = httpx.post(
                    f"http://{address}/api/pull",
                    json={"model": str(weights), "stream": False},
                    headers={"User-Agent": agent},
                    timeout=TIMEOUT_S,
                )
                assert pulled.status_code == 200, pulled.text
            process.terminate()  # it ends once all is shown
        server.terminate()
        assert server.stdout is not None
        shown = [json.loads(line)[5] for line in server.stdout]
    assert shown == [f"{weights} is ready"]
