"""python -m runner.cluster.bridge SOCKET: the daemon's way into Ray, a process of its own.

So the daemon loads no Ray, and outlives it: Ray ends the processes that use it when a node or the
head is lost. The daemon connects to SOCKET once for control and once for each session with a
replica; what it says first tells which. stdin ends with the daemon, and so does this process.

Control, from the daemon: an id in each, which the answer has.
    nodes                       what each node has, see NodeFacts
    deploy     spec             answered once the replicas are ready
    undeploy   app
    specs                       those of all deployments, by application
    describe   app              what one replica says; starts the first where there is none
    status                      what Serve and all replicas say
    offer      digest           serve this model to nodes; answered with where that is
    cluster                     what this cluster has unlike any other one
To the daemon:
    reply      id, result
    error      id, error
    replicas   app, replicas    those that are ready from now on
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

from runner.cluster.bridge_session import BridgeSession
from runner.cluster.cluster_calls import ClusterCalls
from runner.errors import HearthError, InternalError
from runner.settings import load
from runner.worker.frame_reader import FrameReader
from runner.worker.protocol import ProtocolError, encode_frame

log = logging.getLogger("hearth.cluster")


class Bridge:
    """Takes the daemon's connections."""

    def __init__(self, calls: ClusterCalls, silence_s: float) -> None:
        """silence_s: see the setting cluster_silence."""
        self._calls, self._silence_s = calls, silence_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called with each connection."""
        frames = FrameReader(reader)
        try:
            first = await frames.read()
            if first is not None and first["op"] == "session":
                handle = await self._calls.handle(str(first["app"]))
                replica, link = str(first["replica"]), (reader, writer)
                await BridgeSession(handle, replica, link, self._silence_s).run()
            elif first is not None and first["op"] == "control":
                await self._control(frames, writer)
        except (ProtocolError, KeyError, ConnectionError) as error:
            log.warning("a connection of the daemon ended: %s", error)
        except HearthError as error:
            writer.write(encode_frame({"op": "failed", "error": error.to_wire()}))
        finally:
            writer.close()

    async def _control(self, frames: FrameReader, writer: asyncio.StreamWriter) -> None:
        def send(frame: dict[str, Any]) -> None:
            writer.write(encode_frame(frame))

        def announce(app: str, replicas: frozenset[str]) -> None:
            frame = {"op": "replicas", "app": app, "replicas": sorted(replicas)}
            self._loop.call_soon_threadsafe(send, frame)

        self._calls.listen(announce)
        while (frame := await frames.read()) is not None:
            task = self._loop.create_task(self._answer(frame, send))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, frame: dict[str, Any], send: Any) -> None:
        ident, op = frame["id"], frame["op"]
        values = {name: value for name, value in frame.items() if name not in ("id", "op")}
        try:
            send({"op": "reply", "id": ident, "result": await self._calls.call(op, values)})
        except HearthError as error:
            send({"op": "error", "id": ident, "error": error.to_wire()})
        except Exception as error:
            log.exception("%s failed", op)
            said = InternalError(f"Ray could not {op}: {type(error).__name__}: {error}"[:500])
            send({"op": "error", "id": ident, "error": said.to_wire()})


if sys.platform == "win32":

    async def serve_daemon(path: Path) -> None:  # noqa: ARG001
        """Raises OSError."""
        raise OSError("a cluster needs Unix sockets, which Windows has not here")
else:

    async def serve_daemon(path: Path) -> None:
        """Serve until stdin ends."""
        calls = await asyncio.to_thread(ClusterCalls.connect)
        await calls.open_server()
        bridge = Bridge(calls, load().cluster_silence)
        server = await asyncio.start_unix_server(bridge.connected, path, limit=1 << 20)
        print("ready", flush=True)
        async with server:
            gone = asyncio.StreamReader()
            loop = asyncio.get_running_loop()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(gone), sys.stdin)
            await gone.read()


def main() -> None:
    """Never returns: Ray's threads may hang with the cluster."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    code = 0
    try:
        asyncio.run(serve_daemon(Path(sys.argv[1])))
    except HearthError as error:
        print(error.message, file=sys.stderr)
        code = 1
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
