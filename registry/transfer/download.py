"""Fetches one remote file into a partial file: ranges in parallel, each chunk journalled.

Owns the streams, their faults and the second fetch after a wrong digest. Knows neither HTTP nor
where the content goes afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass, field

from registry.digest import Digest
from registry.errors import DigestMismatch, RemoteUnreachable, shown_size
from registry.hosts.host import RangesIgnored, RemoteFile, RetryLater
from registry.transfer.partial import PartialFile
from registry.transfer.rate import Backoff, RateLimit, Streams

WRITE_BYTES = 1024 * 1024
HASH_BYTES = 8 * 1024 * 1024
MAX_SEGMENT_BYTES = 64 * 1024 * 1024
MEASURE_S = 1.0
MIN_BYTES_PER_S = 256
_REFETCH_ROUNDS = 8


@dataclass(slots=True)
class BlobProgress:
    """One file on its way. resumed_bytes: what an earlier run had left. key: see RemoteFile."""

    title: str
    digest: Digest | None
    total_bytes: int
    completed_bytes: int = 0
    resumed_bytes: int = 0
    done: bool = False
    key: str = ""


@dataclass(slots=True)
class DownloadOptions:
    """How a download behaves. wait_scale: of the waits after faults, smaller in tests."""

    limit: RateLimit = field(default_factory=lambda: RateLimit(None))
    streams: int = 12
    wait_scale: float = 1.0
    stall_s: float = 30.0


class Download:
    """One download. run ends with the digest of the content, which the partial file then has."""

    def __init__(
        self,
        file: RemoteFile,
        partial: PartialFile,
        progress: BlobProgress,
        options: DownloadOptions,
    ) -> None:
        self._file = file
        self._partial = partial
        self._plan = partial.plan
        self._progress = progress
        self._options = options
        self._backoff = Backoff(options.wait_scale)
        self._streams = Streams(options.streams)
        self._missing = sorted(set(range(self._plan.count)) - partial.arrived)
        self._taken: set[int] = set()
        self._suspects: dict[int, None] = {}
        self._wake = asyncio.Event()
        self._fetching = 0
        self._rangeless = False
        progress.completed_bytes = progress.resumed_bytes = partial.arrived_bytes

    async def run(self) -> Digest:
        """Fetch what is missing. Raises RemoteError, DigestMismatch when the server's content is
        not what was expected, StoreFull and StoreFault; what has arrived stays."""
        await self._fetch_all()
        digest = self._partial.digest()
        if self._file.digest is not None and digest != self._file.digest:
            digest = await self._refetch_wrong(self._file.digest)
        return digest

    async def _fetch_all(self) -> None:
        """Fetch and hash everything that is missing."""
        hashing = asyncio.create_task(self._hash())
        streams: set[asyncio.Task[None]] = set()
        try:
            await self._supervise(hashing, streams)
        finally:
            for task in (hashing, *streams):
                task.cancel()
            await asyncio.gather(hashing, *streams, return_exceptions=True)

    async def _supervise(
        self, hashing: asyncio.Task[None], streams: set[asyncio.Task[None]]
    ) -> None:
        since_s, before = time.monotonic(), self._progress.completed_bytes
        while not hashing.done():
            while self._missing and len(streams) < self._streams.wanted:
                streams.add(asyncio.create_task(self._stream()))
            done, _ = await asyncio.wait(
                {hashing, *streams}, timeout=MEASURE_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done & streams:
                streams.discard(task)
                task.result()
            now_s = time.monotonic()
            if now_s - since_s >= MEASURE_S:
                gained = self._progress.completed_bytes - before
                self._streams.measured(gained / (now_s - since_s))
                since_s, before = now_s, self._progress.completed_bytes
        hashing.result()

    async def _hash(self) -> None:
        """Hash chunk after chunk as they come; ends with the last one."""
        while self._partial.hashed < self._plan.count:
            ready = self._ready()
            if not ready:
                self._wake.clear()
                await self._wake.wait()
                continue
            damaged = await asyncio.to_thread(self._partial.hash_next, ready)
            if damaged is not None:
                self._progress.completed_bytes -= self._plan.length(damaged)
                self._missing.insert(0, damaged)

    def _ready(self) -> int:
        """How many chunks can be hashed now, at most as many as make one good piece of work."""
        first = self._partial.hashed
        last = first
        while last - first < max(1, HASH_BYTES // self._plan.chunk_bytes):
            if self._partial.crc(last) is None or last in self._taken:
                break
            last += 1
        return last - first

    async def _stream(self) -> None:
        """Fetch segments until nothing is missing or this stream is one too many."""
        while self._missing:
            await asyncio.sleep(self._backoff.hold_s(time.monotonic()))
            segment = self._claim()
            if not segment:
                return
            wait_s = await self._try(segment)
            if wait_s is not None:
                await asyncio.sleep(wait_s)
            if self._streams.wanted <= self._fetching:
                return

    async def _try(self, segment: list[int]) -> float | None:
        """Fetch a segment; gives the seconds to wait after a fault. What did not come is missing
        again."""
        self._fetching += 1
        try:
            await self._fetch(segment)
        except RangesIgnored:
            self._rangeless = True
            self._streams.single()
        except RetryLater as error:
            return self._after_fault(error, segment)
        finally:
            self._fetching -= 1
            self._give_back(segment)
        return None

    def _after_fault(self, error: RetryLater, segment: list[int]) -> float:
        self._suspects.update(dict.fromkeys(segment[:1]))
        if error.after_s is not None:
            self._streams.refused()
        wait_s = self._backoff.failed(time.monotonic(), error.after_s)
        if wait_s is None:
            kept = shown_size(self._progress.completed_bytes)
            raise RemoteUnreachable(
                f"{error.reason}; {kept} of {shown_size(self._plan.size_bytes)} were kept; pull "
                "again to resume"
            )
        return wait_s

    def _claim(self) -> list[int]:
        """The next run of missing chunks for one request; longer ones while much is missing."""
        if not self._missing:
            return []
        share = len(self._missing) // (2 * self._streams.wanted)
        max_chunks = max(1, min(share, MAX_SEGMENT_BYTES // self._plan.chunk_bytes))
        if self._rangeless:
            max_chunks = len(self._missing)
        first = self._missing[0]
        segment = [first]
        for index in self._missing[1:max_chunks]:
            if index != segment[-1] + 1:
                break
            segment.append(index)
        del self._missing[: len(segment)]
        self._taken.update(segment)
        return segment

    def _give_back(self, segment: Iterable[int]) -> None:
        left = [index for index in segment if index in self._taken]
        self._taken.difference_update(left)
        self._missing = sorted([*left, *self._missing])

    async def _fetch(self, segment: list[int]) -> None:
        start, stop = self._plan.bounds(segment[0])[0], self._plan.bounds(segment[-1])[1]
        first = 0 if self._rangeless else start
        async with self._file.source.read(first, stop) as parts:
            watched = self._watched(parts, start - first)
            async with contextlib.aclosing(watched):
                await self._receive(segment, watched)

    async def _watched(
        self, parts: AsyncIterator[bytes | bytearray], skipped_bytes: int
    ) -> AsyncGenerator[memoryview, None]:
        """The parts without the first skipped_bytes, at the pace that the user allows. Raises
        RetryLater when they trickle: a silent connection times out by itself, this one does not."""
        since_s, received = time.monotonic(), 0
        async for part in parts:
            view = memoryview(part)
            received += len(view)
            now_s = time.monotonic()
            if self._options.limit.set:
                await self._options.limit.take(len(view))
                since_s += time.monotonic() - now_s  # nobody asked for bytes meanwhile
            if now_s - since_s >= self._options.stall_s:
                if received < MIN_BYTES_PER_S * self._options.stall_s:
                    raise RetryLater(f"only {received} bytes came in {now_s - since_s:.0f} s")
                since_s, received = now_s, 0
            if skipped_bytes < len(view):
                yield view[skipped_bytes:]
            skipped_bytes = max(0, skipped_bytes - len(view))

    async def _receive(self, segment: list[int], parts: AsyncIterator[memoryview]) -> None:
        """Write what arrives; the bytes of a chunk that does not become complete are not
        counted. Raises RetryLater for fewer bytes than promised."""
        chunks = iter(segment)
        filling = _Chunk(self._partial, next(chunks))
        try:
            async for view in parts:
                while view:
                    view = view[filling.feed(view) :]
                    if filling.complete:
                        await filling.finish()
                        self._arrived(filling)
                        following = next(chunks, None)
                        if following is None:
                            return
                        filling = _Chunk(self._partial, following)
                    elif filling.should_write:
                        await filling.flush()
            raise RetryLater("the connection was closed before the range was complete")
        finally:
            await filling.settle()

    def _arrived(self, chunk: _Chunk) -> None:
        self._taken.discard(chunk.index)
        self._progress.completed_bytes += self._plan.length(chunk.index)
        self._backoff.progressed()
        self._wake.set()

    async def _refetch_wrong(self, expected: Digest) -> Digest:
        """The digest is wrong: fetch again what is not what arrived, then what is under
        suspicion, then the rest, part by part, until it is right. Nothing is thrown away.

        Raises DigestMismatch when the server sent the same bytes twice.
        """
        bad = await asyncio.to_thread(
            lambda: [i for i in range(self._plan.count) if not self._partial.is_intact(i)]
        )
        rest = [i for i in range(self._plan.count) if i not in self._suspects]
        step = -(-len(rest) // _REFETCH_ROUNDS) or 1
        parts = [rest[i : i + step] for i in range(0, len(rest), step)]
        groups = [bad, list(self._suspects), *parts]
        digest = self._partial.digest()
        for group in groups:
            if group and await self._refetch(group):
                digest = self._partial.digest()
                if digest == expected:
                    return digest
        raise DigestMismatch(str(expected), str(digest))

    async def _refetch(self, group: list[int]) -> bool:
        """Fetch chunks again; True when any came differently."""
        before = {index: self._partial.crc(index) for index in group}
        for index in group:
            self._partial.drop(index)
            self._progress.completed_bytes -= self._plan.length(index)
        self._missing = sorted(group)
        await self._fetch_all()
        return any(self._partial.crc(index) != crc for index, crc in before.items())


class _Chunk:
    """A chunk being received: its bytes go to the disk in parts, one write under way at most."""

    __slots__ = ("_buffer", "_crc", "_left", "_offset", "_partial", "_writing", "index")

    def __init__(self, partial: PartialFile, index: int) -> None:
        self.index = index
        self._partial = partial
        self._offset = partial.plan.bounds(index)[0]
        self._left = partial.plan.length(index)
        self._buffer = bytearray()
        self._crc = 0
        self._writing: asyncio.Future[int] | None = None

    @property
    def complete(self) -> bool:
        """True when all bytes are here."""
        return self._left == 0

    @property
    def should_write(self) -> bool:
        """True when enough is held for a write."""
        return len(self._buffer) >= WRITE_BYTES

    def feed(self, view: memoryview) -> int:
        """Take what belongs to this chunk; gives how much."""
        count = min(self._left, len(view))
        self._buffer += view[:count]
        self._left -= count
        return count

    async def flush(self) -> None:
        """Have what is held written, after the write before."""
        await self.settle()
        held, self._buffer = self._buffer, bytearray()
        self._writing = asyncio.ensure_future(
            asyncio.to_thread(self._write, self._offset, held, self._crc)
        )
        self._offset += len(held)

    async def finish(self) -> None:
        """Write the rest and the record in the journal."""
        await self.settle()
        held, self._buffer = self._buffer, bytearray()
        work = asyncio.to_thread(self._complete, self._offset, held, self._crc)
        self._writing = asyncio.ensure_future(work)
        await self.settle()

    async def settle(self) -> None:
        """Wait for the write under way, also when cancelled: its buffer must not outlive the
        file."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            self._crc = await asyncio.shield(writing)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await asyncio.wait({writing})
            raise

    def _complete(self, offset: int, held: bytearray, crc: int) -> int:
        crc = self._write(offset, held, crc)
        self._partial.add(self.index, crc)
        return crc

    def _write(self, offset: int, held: bytearray, crc: int) -> int:
        self._partial.write(offset, held)
        return zlib.crc32(held, crc)
