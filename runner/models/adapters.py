"""The LoRA adapters in one worker: those that requests use, and idle ones while there is room.

Owns when an adapter goes to the worker and when it leaves: one that no lease uses, the least
recently used first. Knows neither how it is computed with nor to which model it belongs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from registry.bundle import BundleFile
from runner.errors import CapacityError, HearthError, InsufficientMemory, StorageFailed
from runner.models.memory_estimate import gib
from runner.models.worker import Worker
from runner.settings import Settings, source
from runner.worker.json_codec import bytes_to_json

PIECE_BYTES = 4 << 20
WEIGHT_BYTES = 4  # of a weight in memory at most; files may have two


@dataclass(slots=True)
class _Loaded:
    """ready False: whether the worker has it is not known, as a load was given up."""

    size_bytes: int
    users: int = 0
    ready: bool = False


class LoadedAdapters:
    """Of one worker. Used on the event loop only."""

    def __init__(self, settings: Settings) -> None:
        self._limit_bytes = settings.adapter_memory
        self._wait_s = settings.load_timeout
        self._loaded: dict[str, _Loaded] = {}  # by the files' names, the last used one last
        self._turn = asyncio.Lock()  # of who loads: nobody holds some and waits for others
        self._idle = asyncio.Event()  # set when one is not used any more

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are loaded, the least recently used first."""
        return tuple(self._loaded)

    @property
    def size_bytes(self) -> int:
        """What they take, at most."""
        return sum(each.size_bytes for each in self._loaded.values())

    @asynccontextmanager
    async def using(self, worker: Worker, files: Sequence[BundleFile]) -> AsyncIterator[None]:
        """Have the adapters of files loaded meanwhile. Raises InsufficientMemory for more than are
        allowed, CapacityError where others are in use for too long, and what the worker reports."""
        names = [file.path.name for file in files]
        if not self._begin(names):
            async with self._turn:
                while not self._begin(names):
                    await self._load(worker, files)
        try:
            yield
        finally:
            for name in names:
                if (loaded := self._loaded.get(name)) is not None:
                    loaded.users -= 1
            self._idle.set()

    async def drop(self, worker: Worker, names: Iterable[str]) -> None:
        """Those of names that nobody uses leave."""
        for name in names:
            if (found := self._loaded.get(name)) is not None and not found.users:
                await self._unload(worker, name)

    def _begin(self, names: Sequence[str]) -> bool:
        """Use them, if all are there."""
        if not all(self._is_ready(name) for name in names):
            return False
        for name in names:
            loaded = self._loaded[name] = self._loaded.pop(name)
            loaded.users += 1
        return True

    def _is_ready(self, name: str) -> bool:
        found = self._loaded.get(name)
        return found is not None and found.ready

    async def _load(self, worker: Worker, files: Sequence[BundleFile]) -> None:
        """Load those that are missing, in place of others where they must."""
        sizes = {file.path.name: _size_bytes(file) for file in files}
        if (wanted := sum(sizes.values())) > self._limit_bytes:
            raise InsufficientMemory(
                f"the model's adapters take {gib(wanted)}, and all of a model may take"
                f" {gib(self._limit_bytes)} ({source('adapter_memory')})"
            )
        missing = [file for file in files if not self._is_ready(file.path.name)]
        for file in missing:
            self._loaded.pop(file.path.name, None)
        await self._make_room(
            worker, sum(sizes[file.path.name] for file in missing), frozenset(sizes)
        )
        for file in missing:
            name = file.path.name
            loaded = self._loaded[name] = _Loaded(sizes[name])
            try:
                await _send(worker, file)
            except HearthError:
                del self._loaded[name]
                raise
            loaded.ready = True

    async def _make_room(self, worker: Worker, size_bytes: int, besides: frozenset[str]) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while self.size_bytes + size_bytes > self._limit_bytes:
                    self._idle.clear()
                    idle = (name for name, each in self._loaded.items() if not each.users)
                    name = next((name for name in idle if name not in besides), None)
                    if name is not None:
                        await self._unload(worker, name)
                    else:
                        await self._idle.wait()
        except TimeoutError:
            raise CapacityError(
                f"all adapters of {worker.name} in memory are in use, {gib(self.size_bytes)} of"
                f" {gib(self._limit_bytes)} ({source('adapter_memory')}), for"
                f" {self._wait_s:.0f} s ({source('load_timeout')}): try again later"
            ) from None

    async def _unload(self, worker: Worker, name: str) -> None:
        del self._loaded[name]
        await worker.call("adapter", action="unload", name=name)


def _size_bytes(file: BundleFile) -> int:
    """In memory, at most; whatever number of weights the header says."""
    return WEIGHT_BYTES * sum(tensor.elements for tensor in file.header.tensors)


async def _send(worker: Worker, file: BundleFile) -> None:
    """The worker reads no file that was not there when it began: it gets the bytes."""
    await worker.call("adapter", action="begin", size=file.size_bytes)
    try:
        sent = 0
        while data := await asyncio.to_thread(_piece, file.path, sent):
            await worker.call("adapter", action="write", data=bytes_to_json(data))
            sent += len(data)
        await worker.call("adapter", action="load", name=file.path.name)
    except OSError as error:
        raise StorageFailed(f"the adapter {file.path.name} cannot be read: {error}") from error
    finally:
        with suppress(HearthError):
            await worker.call("adapter", action="drop")


def _piece(path: Path, first: int) -> bytes:
    """What is there from this byte on. Opened each time: a caller that is cancelled would leave a
    file open that a thread has opened for it."""
    with path.open("rb") as opened:
        opened.seek(first)
        return opened.read(PIECE_BYTES)
