"""The tray's life on the session's bus: at the watcher of the tray, whichever it is, until the bus
ends or Quit tray is chosen."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from dbus_fast import BusType, DBusError, Message, MessageType, NameFlag, RequestNameReply
from dbus_fast.aio import MessageBus

from cli.errors import CliError
from cli.terminal import status
from cli.tray import dbus_menu, status_item
from cli.tray.daemon_state import DaemonState
from cli.tray.dbus_menu import DbusMenu
from cli.tray.menu import QUIT, Entry, entries
from cli.tray.status_item import StatusItem

WATCHER = "org.kde.StatusNotifierWatcher"
NAME = "local.hearth.Tray"  # one in a session
INTERVAL_S = 10.0  # between questions to the daemon while nobody looks
_BEFORE_MENU_S = 1.0  # how long a menu waits for the daemon's answer
_BUS = "org.freedesktop.DBus"
_NO_TRAY = (
    "this desktop has no tray for hearth (no {name} on the session's bus); waiting for one. GNOME "
    "needs the AppIndicator extension"
)


async def show_tray(
    observe: Callable[[], DaemonState],
    act: Callable[[tuple[str, ...]], Awaitable[None]],
    interval_s: float = INTERVAL_S,
) -> None:
    """Be in the tray. observe: asks the daemon, and may take its time. act: runs a verb. Raises
    CliError where there is no bus, or a tray already."""
    try:
        bus = await MessageBus(bus_type=BusType.SESSION).connect()
    except (OSError, ValueError, DBusError) as error:
        raise CliError(f"the session's bus cannot be reached: {error}") from None
    try:
        await Tray(bus, observe, act).run(interval_s)
    finally:
        bus.disconnect()


class Tray:
    """One icon and its menu."""

    def __init__(
        self,
        bus: MessageBus,
        observe: Callable[[], DaemonState],
        act: Callable[[tuple[str, ...]], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._observe = observe
        self._act = act
        self._menu = DbusMenu(
            self._clicked, lambda: self._begin(self._refresh()), self._before_menu
        )
        self._item = StatusItem(lambda: self._begin(self._do(("open",))))
        self._is_in_tray = False
        self._asking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()

    async def run(self, interval_s: float) -> None:
        """Returns when the bus ends or the user has had enough."""
        if await self._bus.request_name(NAME, NameFlag.DO_NOT_QUEUE) not in (
            RequestNameReply.PRIMARY_OWNER,
            RequestNameReply.ALREADY_OWNER,
        ):
            raise CliError("hearth is already in the tray of this session")
        self._bus.export(status_item.PATH, self._item)
        self._bus.export(dbus_menu.PATH, self._menu)
        await self._refresh()
        await self._follow_watcher()
        self._begin(self._until_disconnected())
        while not self._ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), interval_s)
                return
            if not self._is_in_tray:  # a watcher may own its name before it answers
                await self._register()
            await self._refresh()

    async def _until_disconnected(self) -> None:
        with suppress(OSError, EOFError):
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        self._ended.set()

    async def _follow_watcher(self) -> None:
        """Be at the watcher that there is, and at each later one."""
        rule = f"type='signal',sender='{_BUS}',member='NameOwnerChanged',arg0='{WATCHER}'"
        self._bus.add_message_handler(self._on_message)
        await self._call(_BUS, "/org/freedesktop/DBus", "AddMatch", rule)
        await self._register()
        if not self._is_in_tray:
            status(_NO_TRAY.format(name=WATCHER))

    def _on_message(self, message: Message) -> None:
        kind = (message.message_type, message.sender, message.member)
        if kind == (MessageType.SIGNAL, _BUS, "NameOwnerChanged") and message.body[0] == WATCHER:
            self._is_in_tray = False
            if message.body[2]:  # its owner from now on
                self._begin(self._register())

    async def _register(self) -> None:
        """Be at the watcher, if there is one."""
        name = str(self._bus.unique_name)
        reply = await self._call(
            WATCHER, "/StatusNotifierWatcher", "RegisterStatusNotifierItem", name
        )
        self._is_in_tray = reply.message_type is MessageType.METHOD_RETURN

    async def _call(self, destination: str, path: str, member: str, text: str) -> Message:
        reply = await self._bus.call(
            Message(
                destination=destination,
                path=path,
                interface=destination,
                member=member,
                signature="s",
                body=[text],
            )
        )
        assert reply is not None
        return reply

    async def _refresh(self) -> None:
        """Ask the daemon, once at a time, and show what it says."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        state = await asyncio.to_thread(self._observe)
        self._menu.show(entries(state))
        self._item.tell(state.summary)

    async def _before_menu(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._refresh(), _BEFORE_MENU_S)

    def _clicked(self, entry: Entry) -> None:
        if entry.key == QUIT:
            self._ended.set()
        elif entry.words:
            self._begin(self._do(entry.words))

    async def _do(self, words: tuple[str, ...]) -> None:
        await self._act(words)
        await self._refresh()

    def _begin(self, work: Awaitable[object]) -> None:
        """Do it beside everything else."""

        async def ended() -> None:
            await work

        task = asyncio.create_task(ended())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def run_verb(words: tuple[str, ...]) -> None:
    """Run a verb of hearth in a process of its own; what goes wrong is a notification."""
    from runner.notification import notify

    environment = os.environ | ({} if words == ("open",) else {"HEARTH_NO_AUTOSTART": "1"})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "cli.main", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    _, said = await process.communicate()
    if process.returncode != 0:
        text = said.decode(errors="replace").strip()
        status(text)
        await asyncio.to_thread(notify, "hearth", text.rpartition("\n")[2])
