"""Answers that outlive their connection: a streamed request with X-Conversation-Id is answered into
a buffer, which its client and later ones read. llama-server's page resumes its answers so.

One answer for a conversation of a caller, the newest. How many there are and how much of each is
kept is bounded; the oldest bytes go first. Knows no routes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.types import Message, Send

from runner.server.caller import current_caller
from runner.server.errors import HttpError

CONVERSATION = "x-conversation-id"  # the header
MAX_ID_CHARS = 256
MAX_BUFFER_BYTES = 2 * 1024 * 1024
PIECE_BYTES = 64 * 1024  # given to a reader at once, of whom there may be many
MAX_OWN_SESSIONS = 8
MAX_SESSIONS = 32
KEPT_S = 300.0  # after its end, as llama-server has it

Key = tuple[str, str]  # the caller's id, and the conversation


class StreamSession:
    """An answer in the making, or made."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self.completed_at: float | None = None
        self.head: Message | None = None  # None: the answer has not begun
        self.dropped_bytes = 0  # from its beginning
        self.producer: asyncio.Task[None] | None = None
        self.expiry: asyncio.TimerHandle | None = None  # once it has ended
        self._buffer = bytearray()
        self._changed = asyncio.Event()

    @property
    def total_bytes(self) -> int:
        """How long the answer is by now."""
        return self.dropped_bytes + len(self._buffer)

    async def take(self, message: Message) -> None:
        """The producer's side: ASGI's send."""
        if message["type"] == "http.response.start":
            self.head = message
        else:
            self._buffer += message.get("body", b"")
            excess = max(0, len(self._buffer) - MAX_BUFFER_BYTES)
            del self._buffer[:excess]
            self.dropped_bytes += excess
        self._tell()

    def end(self) -> None:
        """Nothing more comes."""
        self.completed_at = self.completed_at or time.time()
        self._tell()

    async def begun(self) -> Message:
        """The answer's head, as soon as it exists. Raises HttpError when there will be none."""
        while self.head is None:
            if self.completed_at is not None:
                raise HttpError(400, "request_cancelled", "the request was cancelled")
            await self._changed.wait()
        return self.head

    async def read(self, start: int) -> AsyncIterator[bytes]:
        """The bytes from start on, until the answer ends. Raises HttpError where they are lost."""
        while True:
            if start < self.dropped_bytes:
                message = f"the stream is kept from byte {self.dropped_bytes} on; it was asked for"
                raise HttpError(400, "offset_lost", f"{message} from {start}")
            changed = self._changed
            at = start - self.dropped_bytes
            if data := bytes(self._buffer[at : at + PIECE_BYTES]):
                start += len(data)
                yield data
            elif self.completed_at is not None:
                return
            else:
                await changed.wait()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class StreamSessions:
    """Those of all callers."""

    def __init__(self) -> None:
        self._sessions: dict[Key, StreamSession] = {}

    def open(self, conversation: str, answer: Callable[[Send], Awaitable[None]]) -> StreamSession:
        """A session of the caller, in place of an earlier one, and its answer in the making. Raises
        HttpError for an id that is too long, and for too many sessions."""
        if not 0 < len(conversation) <= MAX_ID_CHARS:
            message = f"X-Conversation-Id: 1 to {MAX_ID_CHARS} characters, not {len(conversation)}"
            raise HttpError(400, "invalid_value", message)
        key = (current_caller().id, conversation)
        self._remove(key)
        self._make_room(key)
        session = self._sessions[key] = StreamSession()
        session.producer = asyncio.create_task(self._produce(key, session, answer))
        return session

    def find(self, conversation: str) -> StreamSession | None:
        """The caller's session of a conversation."""
        return self._sessions.get((current_caller().id, conversation))

    def related(self, conversation: str) -> dict[str, StreamSession]:
        """The caller's sessions of a conversation, and those with ::MODEL after its name."""
        owner = current_caller().id
        return {
            name: session
            for (of, name), session in self._sessions.items()
            if of == owner and (name == conversation or name.startswith(f"{conversation}::"))
        }

    def stop(self, conversation: str) -> None:
        """End the caller's session of a conversation and forget it, if there is one."""
        self._remove((current_caller().id, conversation))

    def close(self, owner: str | None = None) -> None:
        """End those of an owner; None: all."""
        for key in list(self._sessions):
            if owner in (None, key[0]):
                self._remove(key)

    async def _produce(
        self, key: Key, session: StreamSession, answer: Callable[[Send], Awaitable[None]]
    ) -> None:
        try:
            await answer(session.take)
        finally:
            session.end()
            if session.head is None or session.head["status"] != 200:
                self._forget(key, session)
            elif self._sessions.get(key) is session:
                loop = asyncio.get_running_loop()
                session.expiry = loop.call_later(KEPT_S, self._forget, key, session)

    def _make_room(self, key: Key) -> None:
        """Raises HttpError 429 when nothing that has ended can go."""
        own = [other for other in self._sessions if other[0] == key[0]]
        for keys, limit in ((own, MAX_OWN_SESSIONS), (list(self._sessions), MAX_SESSIONS)):
            if len(keys) < limit:
                continue
            ended = [other for other in keys if self._sessions[other].completed_at is not None]
            if not ended:
                message = f"{len(keys)} resumable streams are running; wait, or end one of them"
                raise HttpError(429, "too_many_streams", message)
            self._remove(ended[0])

    def _remove(self, key: Key) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        if session.producer is not None:
            session.producer.cancel()
            session.end()
        if session.expiry is not None:
            session.expiry.cancel()  # it would keep the answer until then

    def _forget(self, key: Key, session: StreamSession) -> None:
        if self._sessions.get(key) is session:
            del self._sessions[key]
