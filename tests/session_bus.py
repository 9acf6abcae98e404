"""`python -P -m tests.session_bus`: a notification server as a desktop has one, of which it writes
each notification as a line of JSON; and the bus that it is on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def session_bus() -> Iterator[str]:
    """The address of a bus of its own."""
    command = ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address=1"]
    with subprocess.Popen(command, stdout=-1, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def notification_server(address: str) -> Iterator[subprocess.Popen[str]]:
    """A server on the bus at address; its stdout has the notifications."""
    command = [sys.executable, "-P", "-m", "tests.session_bus", address]
    with subprocess.Popen(command, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.terminate()


async def _serve(address: str) -> None:
    from dbus_fast import Message
    from dbus_fast.aio import MessageBus

    def on_message(message: Message) -> Message | None:
        if message.member != "Notify":
            return None
        print(json.dumps([str(message.signature), *message.body]), flush=True)
        return Message.new_method_return(message, "u", [1])

    bus = await MessageBus(bus_address=address).connect()
    bus.add_message_handler(on_message)
    await bus.request_name("org.freedesktop.Notifications")
    print("ready", flush=True)
    await bus.wait_for_disconnect()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
