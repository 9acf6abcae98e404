"""Starting the daemon, with a small program in its place."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import daemon
from cli.daemon import absolute_paths, start_daemon, wait_until
from cli.errors import CliError
from runner.client import Client
from runner.settings import Settings, load

PROGRAM = """\
import http.server, json, os, sys
starts, port = sys.argv[1], int(sys.argv[2])
with open(starts, "a") as file:
    print(os.getpid(), os.getsid(0), os.getcwd(), os.environ["HEARTH_HOME"], file=file)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"version": "0.32.0", "hearth": "0", "name": "hearth"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with a folder of their own and an address where nobody listens."""
    home = str(tmp_path / "home")
    return load({"HEARTH_HOME": home, "HEARTH_HOST": f"127.0.0.1:{free_port()}"})


@pytest.fixture
def starts(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file in which every started program writes its line; they are ended afterwards."""
    program, record = tmp_path / "program.py", tmp_path / "starts"
    program.write_text(PROGRAM)
    command = (sys.executable, str(program), str(record), str(settings.host.port))
    monkeypatch.setattr(daemon, "COMMAND", command)
    yield record
    for line in record.read_text().splitlines():
        pid = int(line.split()[0])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


def test_a_started_daemon_answers_and_belongs_to_no_terminal(
    settings: Settings, starts: Path
) -> None:
    client = Client(settings.host.url)
    start_daemon(settings, client)
    assert client.version() == "0"
    pid, session, folder, home = starts.read_text().split()
    assert session == pid != str(os.getsid(0))
    assert folder == "/"
    assert home == str(settings.home)


def test_of_two_callers_at_once_one_starts_it(settings: Settings, starts: Path) -> None:
    faults: list[BaseException] = []

    def start() -> None:
        try:
            client = Client(settings.host.url)
            start_daemon(settings, client)
            client.version()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert len(starts.read_text().splitlines()) == 1


def test_a_daemon_that_ends_at_once_shows_the_end_of_its_log(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = settings.state_dir / "daemon.log"
    log.parent.mkdir(parents=True)
    log.write_text("an older line\n")
    script = "import sys; sys.exit('port 4327 is in use')"
    monkeypatch.setattr(daemon, "COMMAND", (sys.executable, "-c", script))
    client = Client(settings.host.url)
    with pytest.raises(CliError) as caught:
        start_daemon(settings, client)
    assert "exited at once with exit code 1" in caught.value.message
    assert "port 4327 is in use" in caught.value.message
    assert "an older line" not in caught.value.message


def test_a_log_that_cannot_be_written_is_named(settings: Settings) -> None:
    settings.state_dir.parent.mkdir(parents=True)
    settings.state_dir.touch()
    with pytest.raises(CliError, match=r"daemon\.log cannot be written: .*Set HEARTH_HOME to"):
        start_daemon(settings, Client(settings.host.url))


def test_a_daemon_that_never_answers_is_ended(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = "import signal; print('half way', flush=True); signal.pause()"
    monkeypatch.setattr(daemon, "COMMAND", (sys.executable, "-c", script))
    client = Client(settings.host.url)
    with pytest.raises(CliError, match="does not respond"):
        start_daemon(settings, client, timeout_s=0.3)


def test_a_large_log_is_put_aside(
    settings: Settings, starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = settings.state_dir / "daemon.log"
    log.parent.mkdir(parents=True)
    log.write_text("old")
    monkeypatch.setattr(daemon, "_LOG_LIMIT_BYTES", 1)
    client = Client(settings.host.url)
    start_daemon(settings, client)
    assert log.with_suffix(".old.log").read_text() == "old"


def test_relative_folders_are_passed_on_as_absolute_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_paths(load({"HEARTH_HOME": "h"})) == {"HEARTH_HOME": str(tmp_path / "h")}


def test_waiting_ends_with_the_condition_or_the_deadline() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), time.monotonic() + 60)
    assert not wait_until(lambda: False, time.monotonic() - 1)
