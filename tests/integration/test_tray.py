"""hearth tray as a process, with a daemon and a tray that the tests play."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("dbus_fast")

from tests.conftest import install_models
from tests.integration.cli_process import COMMAND, TIMEOUT_S, end, environment, free_address, hearth
from tests.session_bus import session_bus
from tests.tray_host import MENU, TrayHost, tray_host

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="needs dbus-daemon")


@pytest.fixture
def bus() -> Iterator[str]:
    with session_bus() as address:
        yield address


@asynccontextmanager
async def tray(env: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(*COMMAND, "tray", env=env)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def first_line(host: TrayHost, icon: str) -> str:
    """Of the menu as it is when somebody looks."""
    await host.call(icon, MENU, "AboutToShow", "i", 0)
    return (await host.labels(icon))[0]


async def test_it_follows_a_daemon_through_its_life_and_acts_on_it(
    bus: str, tmp_path: Path
) -> None:
    install_models(tmp_path, ("echo",))
    env = environment(tmp_path, free_address(), HEARTH_NO_AUTOSTART="0")
    env["DBUS_SESSION_BUS_ADDRESS"] = bus
    facts = tmp_path / "state" / "daemon.json"
    async with tray_host(bus) as host, tray(env) as process:
        icon = await host.icon()
        assert await first_line(host, icon) == "[hearth is not running]"
        assert not facts.exists()  # it has started none
        try:
            assert (await asyncio.to_thread(hearth, env, "run", "echo", "hello")).returncode == 0
            assert (await first_line(host, icon)).startswith("[1 model in memory, ")
            await host.click(icon, "Unload echo")
            await host.signal("LayoutUpdated")
            while await first_line(host, icon) != "[no model is in memory]":
                await host.signal("LayoutUpdated")
            await host.click(icon, "Stop hearth")
            while await first_line(host, icon) != "[hearth is not running]":
                await host.signal("LayoutUpdated")
            assert (await asyncio.to_thread(hearth, env, "list")).returncode == 0  # another one
            assert await first_line(host, icon) == "[no model is in memory]"
        finally:
            if facts.exists():
                end(int(json.loads(facts.read_text())["pid"]))
        await host.click(icon, "Quit tray")
        assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 0


async def test_it_does_not_wake_a_daemon_that_systemd_holds_the_port_for(
    bus: str, tmp_path: Path
) -> None:
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
        env = environment(tmp_path, address, XDG_CONFIG_HOME=str(tmp_path), HEARTH_NO_AUTOSTART="0")
        env |= {"PATH": f"{bins}:{env['PATH']}", "DBUS_SESSION_BUS_ADDRESS": bus}
        async with tray_host(bus) as host, tray(env):
            icon = await host.icon()
            for _ in range(3):
                assert await first_line(host, icon) == "[hearth is not running]"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
