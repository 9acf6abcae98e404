"""The tray on a bus of its own, with a tray of a desktop that the tests play."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("dbus_fast")

from cli.errors import CliError
from cli.main import execute
from cli.service import desktop
from cli.tray import session
from cli.tray.daemon_state import DaemonState, LoadedModel
from tests.session_bus import notification_server, session_bus
from tests.tray_host import ITEM, MENU, Refused, TrayHost, tray_host

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="needs dbus-daemon")

EMBER = LoadedModel("ember", 75_000_000)
ODD = LoadedModel("my_odd__model:latest", 2_000_000_000)


ICON = Path(desktop.__file__).with_name("hearth.svg")


class Daemon:
    """What the tray sees of one, and the verbs that it runs."""

    def __init__(self) -> None:
        self.state = DaemonState(is_running=True, models=(EMBER,))
        self.verbs: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
        self.answers = threading.Event()
        self.answers.set()
        self.asked = 0
        self.looked = threading.Event()  # three times

    def observe(self) -> DaemonState:
        assert self.answers.wait(60)
        self.asked += 1
        if self.asked == 3:
            self.looked.set()
        return self.state

    async def act(self, words: tuple[str, ...]) -> None:
        await self.verbs.put(words)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with session_bus() as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        yield address


@asynccontextmanager
async def tray(daemon: Daemon, interval_s: float = 60.0) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(session.show_tray(daemon.observe, daemon.act, interval_s))
    try:
        yield task
    finally:
        daemon.answers.set()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def tooltip(host: TrayHost, icon: str) -> str:
    found = await host.properties(icon, "/StatusNotifierItem", ITEM)
    return str(found["ToolTip"][3])


async def test_a_desktop_finds_name_icon_text_and_menu(bus: str) -> None:
    async with tray_host(bus) as host, tray(Daemon()):
        icon = await host.icon()
        found = await host.properties(icon, "/StatusNotifierItem", ITEM)
        assert (found["Id"], found["Status"], found["Menu"]) == ("hearth", "Active", "/MenuBar")
        assert (found["IconThemePath"], found["IconName"]) == (str(ICON.parent), ICON.stem)
        assert await tooltip(host, icon) == "1 model in memory, 75 MB"
        assert (await host.properties(icon, "/MenuBar", MENU))["Version"] == 3


async def test_the_menu_has_the_models_and_each_line_runs_its_verb(bus: str) -> None:
    daemon = Daemon()
    daemon.state = DaemonState(is_running=True, models=(EMBER, ODD))
    async with tray_host(bus) as host, tray(daemon):
        icon = await host.icon()
        assert await host.labels(icon) == [
            "[2 models in memory, 2.1 GB]",
            "Unload ember (75 MB)",
            "Unload my__odd____model:latest (2.0 GB)",
            "-",
            "Open page",
            "Unload all models",
            "-",
            "Stop hearth",
            "Quit tray",
        ]
        for label, words in (
            ("Unload my__", ("stop", "--", "my_odd__model:latest")),
            ("Open page", ("open",)),
            ("Unload all", ("stop", "--all")),
            ("Stop hearth", ("stop", "--daemon")),
        ):
            await host.click(icon, label)
            assert await daemon.verbs.get() == words
        await host.call(icon, ITEM, "Activate", "ii", 1, 1)
        assert await daemon.verbs.get() == ("open",)


async def test_what_cannot_be_chosen_does_nothing(bus: str) -> None:
    daemon = Daemon()
    daemon.state = DaemonState()
    async with tray_host(bus) as host, tray(daemon):
        icon = await host.icon()
        lines = await host.items(icon)
        for number, each in lines:
            if not each.get("enabled", True) or "label" not in each:
                await host.send(icon, number)
            await host.send(icon, number, "hovered")
        with pytest.raises(Refused, match="the menu has no item 999"):
            await host.send(icon, 999)
        with pytest.raises(Refused, match="has no property tooltip"):
            await host.call(icon, MENU, "GetProperty", "is", lines[0][0], "tooltip")
        assert await host.call(icon, MENU, "EventGroup", "a(isvu)", []) == []
        assert daemon.verbs.empty()


async def test_properties_are_told_as_they_are_asked_for(bus: str) -> None:
    async with tray_host(bus) as host, tray(Daemon()):
        icon = await host.icon()
        number = next(n for n, each in await host.items(icon) if each.get("label") == "Open page")
        assert (await host.call(icon, MENU, "GetProperty", "is", number, "label")).value == (
            "Open page"
        )
        asked = [number, 999]
        ((found, named),) = await host.call(
            icon, MENU, "GetGroupProperties", "aias", asked, ["enabled"]
        )
        assert (found, {k: v.value for k, v in named.items()}) == (number, {"enabled": True})
        _, (_, root, below) = await host.call(icon, MENU, "GetLayout", "iias", 0, 0, [])
        assert (root["children-display"].value, below) == ("submenu", [])


async def test_the_menu_is_of_now_when_it_is_shown(bus: str) -> None:
    daemon = Daemon()
    async with tray_host(bus) as host, tray(daemon):
        icon = await host.icon()
        ember = (await host.items(icon))[1][0]
        assert await host.call(icon, MENU, "AboutToShow", "i", 0) is False
        daemon.state = DaemonState(is_running=True, models=(ODD,))
        assert await host.call(icon, MENU, "AboutToShow", "i", 0) is True
        assert (await host.labels(icon))[1].startswith("Unload my__odd")
        with pytest.raises(Refused, match=f"no item {ember}"):  # it is nobody else's now
            await host.send(icon, ember)
        daemon.state = DaemonState()
        changed = await host.call(icon, MENU, "AboutToShowGroup", "ai", [0, 999])
        assert changed == [[0], [999]]
        assert (await host.labels(icon))[0] == "[hearth is not running]"


async def test_a_menu_that_is_open_is_brought_up_to_date(bus: str) -> None:
    """Xfce tells of it then."""
    daemon = Daemon()
    async with tray_host(bus) as host, tray(daemon):
        icon = await host.icon()
        daemon.state = DaemonState()
        await host.send(icon, 0, "opened")
        while (await host.labels(icon))[0] != "[hearth is not running]":
            await host.signal("LayoutUpdated")


async def test_a_change_is_shown_without_anybody_looking(bus: str) -> None:
    daemon = Daemon()
    async with tray_host(bus) as host, tray(daemon, interval_s=0.01):
        icon = await host.icon()
        daemon.state = DaemonState()
        while (await host.labels(icon))[0] != "[hearth is not running]":
            await host.signal("LayoutUpdated")
        while await tooltip(host, icon) != "hearth is not running":
            await host.signal("NewToolTip")


async def test_a_daemon_that_does_not_answer_holds_no_menu_back(
    bus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_BEFORE_MENU_S", 0.01)
    daemon = Daemon()
    async with tray_host(bus) as host, tray(daemon):
        icon = await host.icon()
        asked = daemon.asked
        daemon.answers.clear()
        for _ in range(3):
            assert await host.call(icon, MENU, "AboutToShow", "i", 0) is False
        daemon.answers.set()
        assert await host.call(icon, MENU, "AboutToShow", "i", 0) is False
        assert daemon.asked - asked <= 2  # not one for each look


async def test_a_tray_that_comes_later_or_again_gets_the_icon(
    bus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with tray(Daemon()) as task:
        for _ in range(2):
            async with tray_host(bus) as host:
                icon = await host.icon()
                assert (await host.labels(icon))[-1] == "Quit tray"
        assert not task.done()
    said = capsys.readouterr().err
    assert said.count("this desktop has no tray") <= 1


async def test_a_desktop_without_a_tray_is_told_of_and_waited_for(
    bus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon()
    async with tray(daemon, interval_s=0.01) as task:
        assert await asyncio.to_thread(daemon.looked.wait, 30)
        assert not task.done()
    assert "no org.kde.StatusNotifierWatcher on the session's bus" in capsys.readouterr().err


async def test_one_tray_in_a_session(bus: str) -> None:
    async with tray_host(bus) as host, tray(Daemon()):
        await host.icon()
        with pytest.raises(CliError, match="already in the tray of this session"):
            await session.show_tray(Daemon().observe, Daemon().act)


async def test_quit_ends_it(bus: str) -> None:
    daemon = Daemon()
    async with tray_host(bus) as host, tray(daemon) as task:
        await host.click(await host.icon(), "Quit tray")
        await asyncio.wait_for(task, 30)
        assert daemon.verbs.empty()


async def test_it_ends_with_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon()
    with session_bus() as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        task = asyncio.create_task(session.show_tray(daemon.observe, daemon.act, 60.0))
        async with tray_host(address) as host:
            await host.icon()
    await asyncio.wait_for(task, 30)


async def test_a_verb_that_fails_is_a_notification(
    bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    monkeypatch.setenv("HEARTH_HOST", "127.0.0.1:1")
    with notification_server(bus) as server:
        await session.run_verb(("stop", "--all"))  # nothing runs: no fault
        await session.run_verb(("stop", "--", "ember"))
        assert server.stdout is not None
        shown = json.loads(await asyncio.to_thread(server.stdout.readline))
    assert "http://127.0.0.1:1" in shown[5]
    assert "http://127.0.0.1:1" in capsys.readouterr().err


def test_where_there_is_no_bus_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert execute(["tray"]) == 1
    assert "there is no session bus here" in capsys.readouterr().err
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    assert execute(["tray"]) == 1
    assert "the session's bus cannot be reached" in capsys.readouterr().err


def test_without_the_extra_the_command_says_so(
    bus: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.tray.find_spec", lambda name: None)
    assert execute(["tray"]) == 1
    assert "pip install 'hearth[desktop]'" in capsys.readouterr().err
