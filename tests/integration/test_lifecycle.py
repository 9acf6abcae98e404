"""Start and stop of the daemon: ports, locks, signals, drain."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import StartDaemon, daemon_process

CHAT = "/v1/chat/completions"


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **fields}


def ended(home: Path, env: dict[str, str]) -> tuple[int, str]:
    process = daemon_process(home, env)
    _, said = process.communicate(timeout=30)
    return process.returncode, said


def test_a_second_daemon_on_the_port_says_who_has_it(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    first = start_daemon()
    env = {"HEARTH_HOST": f"127.0.0.1:{first.port}"}
    code, said = ended(tmp_path / "second", env)
    assert code == 69
    assert f"process {first.pid}" in said
    assert str(first.home / "models") in said
    assert "HEARTH_HOST" in said
    assert "Traceback" not in said
    assert not (tmp_path / "second" / "models").exists()


def test_a_port_held_by_another_program_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {"HEARTH_HOST": f"127.0.0.1:{server.getsockname()[1]}"}
        code, said = ended(tmp_path, env)
    assert code == 69
    assert f"process {os.getpid()}" in said


def test_a_second_daemon_on_the_store_names_the_process(start_daemon: StartDaemon) -> None:
    first = start_daemon()
    code, said = ended(first.home, {})
    assert code == 75
    assert f"process {first.pid}" in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HEARTH_KEEP_ALIVE", "soon"), ("HEARTH_MEMORY_LIMIT", "lots"), ("HEARTH_NUM_PARALLEL", "-1")],
)
def test_a_bad_setting_stops_the_start_and_is_named(
    tmp_path: Path, variable: str, value: str
) -> None:
    code, said = ended(tmp_path, {variable: value})
    assert code == 1
    assert f"{variable}={value!r}" in said
    assert "Traceback" not in said


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    store = tmp_path / "file"
    store.touch()
    code, said = ended(tmp_path / "home", {"HEARTH_MODELS": str(store)})
    assert code == 1
    assert f"the models are in {store}, or where HEARTH_MODELS says" in said
    assert len(said.splitlines()) == 1


def test_listening_beyond_this_machine_needs_to_be_asked_for_twice(tmp_path: Path) -> None:
    code, said = ended(tmp_path, {"HEARTH_HOST": "0.0.0.0:0"})
    assert code == 1
    assert "HEARTH_INSECURE_PUBLIC=1" in said


def test_sigterm_lets_a_stream_finish_and_ends_with_0(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
        with client.stream("POST", CHAT, json=body("<|slow|>" + "x" * 50, stream=True)) as up:
            lines = up.iter_lines()
            next(lines)
            daemon.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
    assert daemon.wait() == 0
    assert not (daemon.home / "state" / "daemon.json").exists()


def test_a_stream_longer_than_the_drain_ends_with_an_error_event(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(env={"HEARTH_DRAIN_TIMEOUT": "200ms"})
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
        with client.stream("POST", CHAT, json=body("<|slow|>" + "x" * 2000, stream=True)) as up:
            lines = up.iter_lines()
            next(lines)
            daemon.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert daemon.wait() == 0


def test_a_draining_daemon_takes_no_more_connections(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    with daemon.client() as client, daemon.client() as kept:
        client.post(CHAT, json=body("warm"))
        with client.stream("POST", CHAT, json=body("<|slow|>" + "x" * 300, stream=True)) as up:
            lines = up.iter_lines()
            next(lines)
            daemon.process.send_signal(signal.SIGTERM)
            assert refused_in_the_end(kept)
    assert daemon.wait() == 0


def refused_in_the_end(client: httpx.Client) -> bool:
    """Ask until the daemon takes no more connections; ready or not are the only answers."""
    while True:
        try:
            if client.get("/ready").status_code not in (200, 503):
                return False
        except httpx.TransportError:
            return True


def test_a_second_signal_stops_at_once(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
        workers = psutil.Process(daemon.pid).children()
        with client.stream("POST", CHAT, json=body("<|slow|>" + "x" * 2000, stream=True)) as up:
            lines = up.iter_lines()
            next(lines)
            daemon.process.send_signal(signal.SIGTERM)
            line = next(line for line in iter_until(daemon.lines, "stopping"))
            assert "stopping" in line
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.wait() == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []


def iter_until(lines: list[str], word: str) -> list[str]:
    """The lines with word, once there is one."""
    pause = threading.Event()
    for _ in range(6000):
        found = [line for line in lines if word in line]
        if found:
            return found
        pause.wait(0.01)
    raise AssertionError(f"{word!r} was never logged")


def test_the_state_file_says_where_the_daemon_is(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    facts = json.loads((daemon.home / "state" / "daemon.json").read_text())
    assert (facts["pid"], facts["url"]) == (daemon.pid, daemon.url)


def test_importing_the_server_loads_no_heavy_library() -> None:
    code = (
        "import sys, runner.server.daemon, runner.server.app;"
        "heavy = {'torch', 'llama_cpp', 'ray', 'numpy', 'huggingface_hub', 'jinja2'};"
        "print(sorted((heavy | {'runner.cluster'}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_an_idle_daemon_takes_at_most_90_mb(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.get("/api/tags")
        client.post(CHAT, json=body("warm"))
    assert psutil.Process(daemon.pid).memory_info().rss <= 90 * 1000 * 1000


def test_a_read_only_store_serves_what_it_has(start_daemon: StartDaemon, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root can write everywhere")
    start_daemon(home=tmp_path).stop()
    (tmp_path / "models").chmod(0o500)
    daemon = start_daemon(names=(), home=tmp_path)
    with daemon.client() as client:
        assert client.post(CHAT, json=body("still")).status_code == 200
