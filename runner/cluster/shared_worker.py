"""A replica's worker, which several ingresses use at once.

Each ingress has a session, of which the ids in frames are its own: they are told apart here. A
frame for the worker goes on as it came, and a frame of the worker to those it is for, one of each
engine step for all sequences of a session. Steps that follow each other faster than PACE_S become
one, unless they have more than the next text of answers that have begun. Knows no Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from pydantic_core import to_json as to_bytes

from runner.errors import HearthError, InternalError, WorkerCrashed
from runner.models.supervisor import WorkerHandle
from runner.worker.frame_reader import FrameReader
from runner.worker.json_codec import LARGE, Large, to_json
from runner.worker.protocol import LENGTH, MAX_ANSWER_BYTES, ProtocolError
from runner.worker.rank_network import RankNetwork

log = logging.getLogger("hearth.cluster")

BEAT_S: Final = 0.25  # an ingress hears of the replica at least so often
PACE_S: Final = 0.01  # a message costs replica, bridge and ingress 1 ms of a processor together
SILENCE_S: Final = 10.0  # an ingress that says nothing for so long is gone
_RELAYED: Final = ("reply", "part", "error")
_UNCOUNTED: Final = ("cancel", "pause", "resume")


class Session:
    """One ingress. Its bytes go in by feed, and come out of read."""

    def __init__(self, name: str, take: Callable[[Session, dict[str, Any]], None]) -> None:
        self.name = name
        self.open: set[str] = set()  # ids of what is in flight
        self._begun: set[str] = set()  # of these, answers whose first delta has come
        self._take = take
        self._stream = asyncio.StreamReader(limit=1 << 20)
        self._waiting: list[dict[str, Any]] = []
        self._texts: dict[str, list[Any]] | None = None  # of the last one, if it is nothing else
        self._urgent = False
        self._changed = asyncio.Event()
        self._closed = False
        self._reading = asyncio.create_task(self._read_frames())
        self._loop = asyncio.get_running_loop()
        self._sent_at_s = 0.0
        self.heard_at_s = self._loop.time()

    def feed(self, data: bytes) -> None:
        """Bytes from the ingress, the next ones after those of the last call."""
        self.heard_at_s = self._loop.time()
        if data and not self._closed:
            self._stream.feed_data(data)

    def put(self, frame: dict[str, Any]) -> None:
        """A frame for the ingress."""
        if not self._closed:
            self._waiting.append(frame)
            self._texts, self._urgent = None, True
            self._changed.set()

    def put_step(self, deltas: list[tuple[str, Any]]) -> None:
        """What a step has given the session's sequences. What is only the next text of answers may
        wait for PACE_S, together with more of it."""
        ids = {ident for ident, _ in deltas}
        if not ids <= self._begun or any(type(wire) is not list for _, wire in deltas):
            self._begun = self._begun.union(ids) & self.open
            self.put({"op": "step", "deltas": deltas})
            return
        if self._closed:
            return
        if self._texts is None:
            self._texts = {}
            self._waiting.append({"op": "step", "deltas": []})
            self._changed.set()
        for ident, (text, count) in deltas:
            if (known := self._texts.get(ident)) is not None:
                known[0] += text
                known[1] += count
            else:
                self._texts[ident] = new = [text, count]
                self._waiting[-1]["deltas"].append((ident, new))

    async def read(self) -> AsyncIterator[bytes]:
        """All that waits for the ingress, as it comes; nothing where there is none for BEAT_S, so
        that silence says that the replica is gone. Ends once the session is closed."""
        while self._waiting or not self._closed:
            rest_s = self._sent_at_s + PACE_S - self._loop.time() if self._waiting else BEAT_S
            if not self._urgent and rest_s > 0:
                if not await self._is_changed(rest_s) and not self._waiting:
                    yield b""
                continue
            waiting, self._waiting = self._waiting, []
            self._texts, self._urgent = None, False
            self._sent_at_s = self._loop.time()
            if data := b"".join(map(_encoded, waiting)):
                yield data

    async def _is_changed(self, limit_s: float) -> bool:
        """Wait for what is urgent, or the first of what is not. False: none came in time."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                return await self._changed.wait()
        return False

    def close(self, fault: HearthError | None = None) -> None:
        """Nothing goes in any more; what waits still goes out, with fault as the last."""
        if fault is not None:
            self.put({"op": "failed", "error": fault.to_wire()})
        self._closed = self._urgent = True
        self._changed.set()
        self._reading.cancel()

    async def _read_frames(self) -> None:
        reader = FrameReader(self._stream)
        try:
            while (frame := await reader.read()) is not None:
                self._take(self, frame)
        except (ProtocolError, KeyError, TypeError, ValueError) as error:
            log.warning("session %s: %s", self.name, error)
            self.close(InternalError(f"the ingress sent an invalid frame: {error}"))


class SharedWorker(WorkerHandle):
    """A worker process with sessions. Made by start, as WorkerHandle is."""

    def __init__(self, *args: Any, network: RankNetwork | None = None, **named: Any) -> None:
        """network: where the model's other processes are, if not on this machine."""
        super().__init__(*args, **named)
        self._network = network
        self._sessions: dict[str, Session] = {}
        self.on_failure(lambda: self._end_sessions(self.fault))
        self.on_end(lambda: self._end_sessions(self.fault))

    def _load_frame(self) -> dict[str, Any]:
        frame = super()._load_frame()
        return frame if self._network is None else {**frame, "ranks": to_json(self._network)}

    @property
    def busy(self) -> bool:
        return super().busy or any(session.open for session in self._sessions.values())

    @property
    def sequences(self) -> int:
        """What is in flight, of all sessions."""
        return sum(len(session.open) for session in self._sessions.values())

    @property
    def sessions(self) -> int:
        """How many ingresses are connected."""
        return len(self._sessions)

    def open(self, name: str) -> Session:
        """A session for an ingress. name: unlike all others. Raises what ended the worker."""
        if (error := self.fault) is not None:
            raise error
        session = Session(name, self._forward)
        self._sessions[name] = session
        return session

    def session(self, name: str) -> Session | None:
        """The session of that name, if it is open."""
        return self._sessions.get(name)

    def close_session(self, session: Session) -> None:
        """The ingress is gone, or wants no more: what it asked for ends."""
        if self._sessions.pop(session.name, None) is not None:
            for ident in list(session.open):
                self._send({"op": "cancel", "id": f"{session.name}/{ident}"})
            session.open.clear()
            session.close()

    def close_silent(self) -> None:
        """Close the sessions of ingresses that have said nothing for SILENCE_S."""
        before_s = self._loop.time() - SILENCE_S
        for session in list(self._sessions.values()):
            if session.heard_at_s < before_s:
                log.warning("an ingress was silent for %g s; its requests end", SILENCE_S)
                self.close_session(session)

    def _forward(self, session: Session, frame: dict[str, Any]) -> None:
        op, ident = frame["op"], frame.get("id")
        if op == "load":
            session.put({"op": "ready", "info": to_json(self.info)})
        elif op == "shutdown":
            self.close_session(session)
        elif op == "grant":
            pass  # the replica grants what it has itself
        elif not isinstance(ident, str):
            raise ProtocolError(f"{op!r} without an id")
        elif (error := self.fault) is not None:
            session.put({"op": "error", "id": ident, "error": error.to_wire()})
        else:
            self._forward_request(session, ident, frame)

    def _forward_request(self, session: Session, ident: str, frame: dict[str, Any]) -> None:
        whole = f"{session.name}/{ident}"
        if frame["op"] == "cancel":
            session.open.discard(ident)
        elif frame["op"] not in _UNCOUNTED:
            session.open.add(ident)
            self._watchdog.touch()
        if frame["op"] == "generate":
            frame["request"]["id"] = whole
        self._send({**_beside(frame), "id": whole})

    def _on_frame(self, frame: dict[str, Any]) -> None:
        if frame["op"] == "step":
            self._relay_step(frame["deltas"])
        elif frame["op"] in _RELAYED and "/" in frame["id"]:
            name, _, ident = frame["id"].partition("/")
            session = self._sessions.get(name)
            if session is not None:
                if frame["op"] != "part":
                    session.open.discard(ident)
                session.put({**frame, "id": ident})
        super()._on_frame(frame)

    def _relay_step(self, deltas: list[tuple[str, Any]]) -> None:
        of_session: defaultdict[str, list[tuple[str, Any]]] = defaultdict(list)
        for whole, wire in deltas:
            name, _, ident = whole.partition("/")
            of_session[name].append((ident, wire))
            if isinstance(wire, dict) and wire.get("finish") is not None:
                session = self._sessions.get(name)
                if session is not None:
                    session.open.discard(ident)
        for session in self._sessions.values():
            own = of_session.get(session.name)
            if own or session.open:  # an empty step says that the worker goes on
                session.put_step(own or [])

    def _end_sessions(self, error: HearthError | None) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close(error or WorkerCrashed(f"the replica of {self.name} ended"))


def _encoded(frame: dict[str, Any]) -> bytes:
    body = to_bytes(frame, inf_nan_mode="constants")
    return LENGTH.pack(len(body)) + body if len(body) <= MAX_ANSWER_BYTES else b""


def _beside(value: Any) -> Any:
    """A frame whose large texts and bytes go beside its JSON again."""
    if isinstance(value, dict):
        return {key: _beside(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_beside(item) for item in value] if len(value) < LARGE else value
    is_large = isinstance(value, bytes) or (isinstance(value, str) and len(value) > LARGE)
    return Large(value) if is_large else value
