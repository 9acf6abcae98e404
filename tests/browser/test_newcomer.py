"""A newcomer's first day: the first command, the page, a chat, a model from a registry, two models
side by side, and hearth as a service of the user's own systemd. All parts are the real ones."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.browser.conftest import OpenPage, playwright
from tests.browser.test_chat import Chat
from tests.integration.cli_process import environment, free_address, hearth
from tests.integration.docker_registry import docker_registry, needs_registry

pytestmark = [pytest.mark.slow, needs_registry]
expect = playwright.expect
_PRETEND = """mkdir -p /run/systemd && mount -t tmpfs none /run/systemd &&
mkdir /run/systemd/system && exec systemd --user"""


@contextmanager
def systemd(folder: Path) -> Iterator[dict[str, str]]:
    """A systemd of a user who has nothing yet; gives the variables with which commands find it."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
    }
    command = ["systemd", "--user"]
    if not Path("/run/systemd/system").exists():  # it only starts where systemd runs the machine
        command = ["unshare", "--mount", "sh", "-c", _PRETEND]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(runtime / "told"))
        told.settimeout(30)
        ready = {"NOTIFY_SOCKET": str(runtime / "told")}
        process = subprocess.Popen(command, env=env | ready, stderr=subprocess.DEVNULL)
        try:
            while b"READY=1" not in told.recv(4096):
                pass
        except TimeoutError:
            process.kill()
            pytest.skip("systemd --user does not start here")
    try:
        yield env
    finally:
        process.terminate()
        process.wait(60)


def test_the_first_day(open_page: OpenPage, tmp_path: Path) -> None:
    home, address = tmp_path / "home", free_address()
    env = environment(home, f"http://{address}", HEARTH_OFFLINE="0")
    del env["HEARTH_NO_AUTOSTART"]
    with docker_registry(tmp_path) as registry:
        try:
            said = hearth(env, "run", "ember", "Hello!")
            assert (said.returncode, bool(said.stdout.strip())) == (0, True), said.stderr
            chat = Chat(open_page(f"http://{address}/"), "ember")
            expect(chat.answer("What is the capital of France?")).to_contain_text("Paris")

            team = f"{registry}/team/second"
            assert hearth(env, "cp", "ember", team).returncode == 0
            assert hearth(env, "push", "--insecure", team).returncode == 0
            assert hearth(env, "rm", team).returncode == 0
            page = chat.page
            page.goto(f"http://{address}/#/models")
            page.get_by_test_id("pull-name").fill(team)
            page.get_by_test_id("pull-insecure").check()
            page.get_by_test_id("pull-start").click()
            expect(page.get_by_test_id("pull")).to_have_attribute("data-phase", "done")

            page.goto(f"http://{address}/#/chat")
            chat.at("compare").click()
            chat.at("second-model").select_option(f"{team}:latest")
            chat.send("Name a fruit.")
            for number in (0, 1):
                answer = chat.at("answer").nth(number)
                expect(answer).to_have_attribute("data-state", "done")
                expect(answer.get_by_test_id("stats")).to_contain_text("tok/s")
        finally:
            hearth(env, "stop", "--daemon")


@pytest.mark.skipif(shutil.which("systemd") is None, reason="needs systemd")
def test_the_service_is_installed_answers_and_is_removed(
    open_page: OpenPage, tmp_path: Path
) -> None:
    address = free_address()
    with systemd(tmp_path) as found:
        env = environment(tmp_path / "home", f"http://{address}", **found)
        installed = hearth(env, "service", "install")
        assert installed.returncode == 0, installed.stderr
        try:
            chat = Chat(open_page(f"http://{address}/"), "ember")
            expect(chat.answer("What is the capital of France?")).to_contain_text("Paris")
            assert "running" in hearth(env, "service", "status").stdout
        finally:
            removed = hearth(env, "service", "uninstall")
        assert removed.returncode == 0, removed.stderr
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://{address}/")
        assert not list((tmp_path / ".config/systemd/user").rglob("hearth.*"))
