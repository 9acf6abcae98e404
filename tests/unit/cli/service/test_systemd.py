"""The unit for systemd, and what systemctl is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.service.manager import Service, ServiceState
from cli.service.systemd import Systemd
from runner.setting_values import parse_address

ODD = 'a b"c\\d%e$f'


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What systemctl was told, a line each; show says what the file of the property holds."""
    log = tmp_path / "told"
    (tmp_path / "MainPID").write_text("123\n")
    (tmp_path / "SubState").write_text("running\n")
    script = tmp_path / "bin" / "systemctl"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n[ "$2" != show ] || cat {tmp_path}/${{3#*=}}\n'
        f'[ ! -e {tmp_path}/broken ] || {{ echo "no bus" >&2; exit 1; }}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return log


def service(tmp_path: Path) -> Service:
    variables = {"HEARTH_HOME": ODD, "HEARTH_X": "1"}
    addresses = tuple(map(parse_address, ("localhost:4327", "[::1]:4328")))
    return Service(("/bin/true", ODD), variables, tmp_path / "log", addresses)


def test_installing_writes_the_unit_before_systemd_reads_it(told: Path, tmp_path: Path) -> None:
    manager = Systemd()
    manager.install(service(tmp_path))
    manager.start()
    assert manager.path == tmp_path / "config" / "systemd" / "user" / "hearth.service"
    assert manager.path.stat().st_mode & 0o777 == 0o600
    lines = [line.removeprefix("--user ") for line in told.read_text().splitlines()]
    assert lines == [
        "daemon-reload",
        "disable hearth.service",
        "enable hearth.socket",
        "stop hearth.service hearth.socket",
        "start hearth.socket",
    ]
    assert manager.state() == ServiceState(installed=True, pid=123)
    (tmp_path / "MainPID").write_text("0\n")
    (tmp_path / "SubState").write_text("listening\n")
    assert manager.state() == ServiceState(installed=True, pid=None, waiting=True)
    for text, listens in (("127.0.0.1:4327", True), ("[::1]:4328", True), ("[::1]:4327", False)):
        assert manager.listens_at(parse_address(text)) == listens


def test_uninstalling_stops_the_service_and_removes_the_unit(told: Path, tmp_path: Path) -> None:
    manager = Systemd()
    manager.install(service(tmp_path))
    manager.uninstall()
    assert list(manager.path.parent.iterdir()) == []
    assert "disable --now hearth.socket hearth.service" in told.read_text()
    assert manager.state() == ServiceState(installed=False, pid=None)


def test_without_a_session_nothing_can_be_installed(told: Path, tmp_path: Path) -> None:
    Systemd().check(service(tmp_path))
    (tmp_path / "broken").touch()
    with pytest.raises(CliError, match="no bus"):
        Systemd().check(service(tmp_path))
    assert told.read_text().splitlines() == ["--user show-environment"] * 2


def test_a_value_that_a_unit_cannot_hold_is_refused(tmp_path: Path) -> None:
    bad = Service(("/bin/true",), {"HEARTH_HOME": "a\nExecStart=/bin/sh"}, tmp_path / "log")
    with pytest.raises(CliError, match="cannot be written into a systemd unit"):
        Systemd().check(bad)


@pytest.mark.parametrize(
    ("address", "reason"),
    [(":0", "set HEARTH_HOST to an address with one"), ("no.such.invalid", "no address")],
)
def test_an_address_that_systemd_cannot_listen_at_is_refused(
    tmp_path: Path, address: str, reason: str
) -> None:
    bad = replace(service(tmp_path), addresses=(parse_address(address),))
    with pytest.raises(CliError, match=reason):
        Systemd().check(bad)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_itself_finds_no_fault_in_the_units(told: Path, tmp_path: Path) -> None:
    manager = Systemd()
    manager.install(service(tmp_path))
    units = [str(path) for path in manager.path.parent.iterdir()]
    assert len(units) == 2
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", *units],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path),
             "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "hearth" not in done.stderr, done.stderr
