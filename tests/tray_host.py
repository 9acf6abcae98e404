"""The tray of a desktop, as a program meets it on the bus: a watcher that icons announce themselves
to, and a host that reads them and clicks in their menus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

WATCHER = "org.kde.StatusNotifierWatcher"
ITEM = "org.kde.StatusNotifierItem"
MENU = "com.canonical.dbusmenu"
LIMIT_S = 30.0


class Refused(Exception):
    """The error that the other side has answered with."""


@dataclass
class TrayHost:
    """registered: the bus names of icons, as they come. signals: the members of their signals."""

    bus: MessageBus
    registered: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    signals: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    def on_message(self, message: Message) -> Message | None:
        if message.member == "RegisterStatusNotifierItem":
            self.registered.put_nowait(str(message.body[0]))
            return Message.new_method_return(message)
        if message.message_type is MessageType.SIGNAL:
            self.signals.put_nowait(str(message.member))
        return None

    async def icon(self) -> str:
        """The next icon that announces itself."""
        return await asyncio.wait_for(self.registered.get(), LIMIT_S)

    async def signal(self, member: str) -> None:
        """Wait for one."""
        while await asyncio.wait_for(self.signals.get(), LIMIT_S) != member:
            pass

    async def call(
        self, icon: str, interface: str, member: str, signature: str = "", *body: Any
    ) -> Any:
        """What the icon answers. Raises Refused."""
        reply = await asyncio.wait_for(
            self.bus.call(
                Message(
                    destination=icon,
                    path="/StatusNotifierItem" if interface == ITEM else "/MenuBar",
                    interface=interface,
                    member=member,
                    signature=signature,
                    body=list(body),
                )
            ),
            LIMIT_S,
        )
        assert reply is not None
        if reply.message_type is MessageType.ERROR:
            raise Refused(f"{reply.error_name}: {reply.body[0]}")
        return reply.body[0] if len(reply.body) == 1 else reply.body

    async def properties(self, icon: str, path: str, interface: str) -> dict[str, Any]:
        """All properties of an interface."""
        reply = await self.bus.call(
            Message(
                destination=icon,
                path=path,
                interface="org.freedesktop.DBus.Properties",
                member="GetAll",
                signature="s",
                body=[interface],
            )
        )
        assert reply is not None
        return {name: value.value for name, value in reply.body[0].items()}

    async def items(self, icon: str) -> list[tuple[int, dict[str, Any]]]:
        """The lines of its menu: number and properties."""
        _, (_, _, below) = await self.call(icon, MENU, "GetLayout", "iias", 0, -1, [])
        return [
            (each.value[0], {name: value.value for name, value in each.value[1].items()})
            for each in below
        ]

    async def labels(self, icon: str) -> list[str]:
        """The lines of its menu, - for a separator and in brackets what cannot be chosen."""
        texts = []
        for _, each in await self.items(icon):
            text = each.get("label", "-")
            texts.append(text if each.get("enabled", True) else f"[{text}]")
        return texts

    async def send(self, icon: str, number: int, kind: str = "clicked") -> None:
        """Tell its menu what happened to an item."""
        await self.call(icon, MENU, "Event", "isvu", number, kind, Variant("i", 0), 0)

    async def click(self, icon: str, label: str) -> None:
        """Click on the line that begins with label."""
        lines = await self.items(icon)
        (number,) = (n for n, each in lines if each.get("label", "-").startswith(label))
        await self.send(icon, number)


@asynccontextmanager
async def tray_host(address: str) -> AsyncIterator[TrayHost]:
    """A tray on the bus at address; its icons are gone afterwards."""
    host = TrayHost(await MessageBus(bus_address=address).connect())
    host.bus.add_message_handler(host.on_message)
    await host.bus.call(
        Message(
            destination="org.freedesktop.DBus",
            path="/org/freedesktop/DBus",
            interface="org.freedesktop.DBus",
            member="AddMatch",
            signature="s",
            body=["type='signal'"],
        )
    )
    await host.bus.request_name(WATCHER)
    try:
        yield host
    finally:
        host.bus.disconnect()
