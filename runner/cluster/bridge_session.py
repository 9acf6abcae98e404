"""One session with one replica: bytes between a socket of the daemon and Ray's calls.

A long call brings all frames of the replica, short ones take the daemon's, one after the other and
each with all that waits. Silence of the replica, be it dead, stopped or out of reach, ends the
session, whatever Ray thinks of it, and so does a short call that it does not answer, since a
partition may be of one direction: after the setting cluster_silence, in which time that this
process did not get itself does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from typing import Any, Final

from runner.errors import HearthError, WorkerCrashed
from runner.worker.protocol import encode_frame

log = logging.getLogger("hearth.cluster")

TICK_S: Final = 0.1
OPEN_S: Final = 20.0  # for its first word: Ray may have to connect
PING_S: Final = 0.5
_READ_BYTES: Final = 1 << 20


class BridgeSession:
    """Ends when run returns."""

    def __init__(self, handle: Any, replica: str, link: tuple[Any, Any], silence_s: float) -> None:
        """handle: of Serve's deployment. link: reader and writer of the daemon's socket."""
        self._handle = handle
        self._replica = replica
        self._reader: asyncio.StreamReader = link[0]
        self._writer: asyncio.StreamWriter = link[1]
        self._silence_s = silence_s
        self._name = uuid.uuid4().hex
        self._left_s = OPEN_S  # until the silence is too long
        self._answer_left_s = math.inf  # until the call that is on its way takes too long
        self._opened = asyncio.Event()

    async def run(self) -> None:
        """Returns when either side has ended it; the daemon is told why."""
        work = {
            asyncio.create_task(self._receive()),
            asyncio.create_task(self._send()),
            asyncio.create_task(self._watch()),
        }
        done, pending = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        error = next((task.exception() for task in done if task.exception()), None)
        if error is not None:
            with contextlib.suppress(ConnectionError):
                self._writer.write(encode_frame({"op": "failed", "error": _told(error)}))
        self._writer.close()
        self._call("leave")  # nobody waits for it: the replica may be gone
        await asyncio.gather(*pending, return_exceptions=True)

    async def _receive(self) -> None:
        calls = self._handle.options(method_name="session", stream=True)
        async for data in calls.remote(self._replica, self._name):
            self._left_s = self._silence_s
            self._opened.set()
            if data:
                self._writer.write(data)
                await self._writer.drain()

    async def _send(self) -> None:
        await self._opened.wait()
        reading = asyncio.create_task(self._reader.read(_READ_BYTES))
        try:
            while True:
                await asyncio.wait({reading}, timeout=PING_S)
                data = b""
                if reading.done():
                    data = reading.result()
                    if not data:
                        return
                    reading = asyncio.create_task(self._reader.read(_READ_BYTES))
                self._answer_left_s = self._silence_s
                await self._call("feed", data)
                self._answer_left_s = math.inf
        finally:
            reading.cancel()

    async def _watch(self) -> None:
        while min(self._left_s, self._answer_left_s) > 0:
            await asyncio.sleep(TICK_S)
            self._left_s -= TICK_S
            self._answer_left_s -= TICK_S
        raise WorkerCrashed(
            f"the replica {self._replica} has been silent for {self._silence_s:g} s"
        )

    def _call(self, method: str, *values: Any) -> Any:
        return self._handle.options(method_name=method).remote(self._replica, self._name, *values)


def _told(error: BaseException) -> dict[str, Any]:
    """The error of a call as the daemon gets it."""
    cause = getattr(error, "cause", None)
    for known in (error, cause):
        if isinstance(known, HearthError):
            return known.to_wire()
    log.warning("a session ended: %s", error)
    first = str(error).strip().partition("\n")[0][:200]
    return WorkerCrashed(f"the replica is gone ({type(error).__name__}: {first})").to_wire()
