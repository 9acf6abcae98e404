"""hearth service: what goes into the service, and what happens to a daemon that runs already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.main import execute
from cli.service import choice
from cli.service.manager import Service, ServiceState
from runner.setting_values import Address
from tests.conftest import StartDaemon


class Fake:
    """A service manager that remembers."""

    name = "fake"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.services: list[Service] = []
        self.pid: int | None = None
        self.fault = ""

    def describe(self, service: Service) -> str:
        return json.dumps(dict(service.environment))

    def check(self, service: Service) -> None:
        if self.fault:
            raise CliError(self.fault)

    def install(self, service: Service) -> None:
        self.services.append(service)
        self.path.touch()

    def start(self) -> None:
        self.pid = 1

    def uninstall(self) -> None:
        self.path.unlink()

    def state(self) -> ServiceState:
        return ServiceState(self.path.exists(), self.pid if self.path.exists() else None)

    def listens_at(self, address: Address) -> bool:
        return False


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(tmp_path / "unit")
    monkeypatch.setattr(choice, "find_manager", lambda: made)
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEARTH_HOST", "127.0.0.1:9")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return made


def test_the_service_has_the_settings_of_this_shell_but_no_keys(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEARTH_API_KEY", "secret-canary")
    monkeypatch.setenv("OLLAMA_KEEP_ALIVE", "1h")
    assert execute(["service", "print"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["HEARTH_HOST"] == "127.0.0.1:9"
    assert json.loads(told.out)["HEARTH_KEEP_ALIVE"] == "1h"
    assert "secret-canary" not in told.out + told.err
    assert "HEARTH_API_KEY is a secret and is not written" in told.err
    assert fake.services == []


def test_install_status_and_uninstall(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["service"]) == 0
    assert execute(["service", "install"]) == 0
    assert execute(["service", "status", "--json"]) == 0
    shown = [path.name for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert sorted(shown) == ["hearth.desktop", "hearth.svg"]
    assert execute(["service", "uninstall"]) == 0
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "no service is installed (fake)"
    assert out[1] == f"{fake.path}: running"
    assert json.loads("".join(out[2:-1]))["running"] is True
    assert out[-1] == out[0]
    assert execute(["service", "uninstall"]) == 1
    assert "no service is installed" in capsys.readouterr().err
    assert execute(["service", "enable"]) == 2
    assert "'enable' is not one of" in capsys.readouterr().err


def test_a_daemon_that_runs_already_makes_room_for_the_service(
    fake: Fake, start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    daemon = start_daemon()
    monkeypatch.setenv("HEARTH_HOME", str(daemon.home))
    monkeypatch.setenv("HEARTH_HOST", daemon.url)
    fake.fault = "systemd has no user session here"
    assert execute(["service", "install"]) == 1
    assert "no user session" in capsys.readouterr().err
    assert daemon.process.poll() is None
    assert not fake.path.exists()
    fake.fault = ""
    assert execute(["service", "install"]) == 0
    assert daemon.wait() == 0
    assert f"stopping the daemon (process {daemon.pid})" in capsys.readouterr().err
    assert len(fake.services) == 1
    assert fake.pid == 1


def test_the_number_of_a_dead_daemon_is_left_alone(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "home" / "state" / "daemon.json"
    facts.parent.mkdir(parents=True)
    facts.write_text('{"pid": 1, "url": "http://127.0.0.1:9"}')
    assert execute(["service", "install"]) == 0
    assert "ending" not in capsys.readouterr().err
    assert len(fake.services) == 1


def test_the_tray_is_started_at_login_where_that_is_asked_for(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = tmp_path / "config" / "autostart" / "hearth-tray.desktop"
    monkeypatch.setattr("cli.tray.find_spec", lambda name: None)
    assert execute(["service", "install", "--tray"]) == 1
    assert "pip install 'hearth[desktop]'" in capsys.readouterr().err
    assert fake.services == []
    assert execute(["service", "install"]) == 0
    assert "--tray" not in capsys.readouterr().err
    monkeypatch.setattr("cli.tray.find_spec", lambda name: name)
    assert execute(["service", "install"]) == 0
    assert "in the tray after login: hearth service install --tray" in capsys.readouterr().err
    assert not entry.exists()
    assert execute(["service", "install", "--tray"]) == 0
    assert "HEARTH_HOST=127.0.0.1:9" in entry.read_text()
    assert "--tray" not in capsys.readouterr().err
    assert execute(["service", "uninstall"]) == 0
    assert not entry.exists()
    assert execute(["service", "status", "--tray"]) == 2
    assert "--tray is only for hearth service install" in capsys.readouterr().err
