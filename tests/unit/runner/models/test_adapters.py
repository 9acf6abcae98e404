"""Which adapters a worker holds: loaded for who uses them, idle ones leaving for others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry.bundle import BundleFile
from registry.formats.gguf import read_header
from registry.formats.gguf.header import CHECKPOINT
from runner.errors import CapacityError, InsufficientMemory, ModelLoadFailed
from runner.models.adapters import WEIGHT_BYTES, LoadedAdapters
from runner.settings import Settings
from tests.gguf_files import Tensor, gguf_file, text, u32

SIZE = WEIGHT_BYTES * 2 * 64 * 8


class FakeWorker:
    """Holds what it is told to."""

    name = "ember"

    def __init__(self) -> None:
        self.held: list[str] = []
        self.received = 0
        self.refuses: set[str] = set()
        self.blocked: asyncio.Event | None = None

    async def call(self, op: str, **values: Any) -> Any:
        """See Worker.call."""
        assert op == "adapter"
        if values["action"] == "begin":
            self.received = 0
        elif values["action"] == "write":
            self.received += 1
        elif values["action"] == "load":
            if self.blocked is not None:
                await self.blocked.wait()
            if values["name"] in self.refuses:
                raise ModelLoadFailed("no")
            assert self.received > 0
            assert values["name"] not in self.held
            self.held.append(values["name"])
        elif values["action"] == "unload":
            self.held = [name for name in self.held if name != values["name"]]


@pytest.fixture
def files(tmp_path: Path) -> list[BundleFile]:
    keys = {"general.type": text("adapter"), "general.architecture": text("llama")}
    tensors = [
        Tensor("blk.0.attn_q.weight.lora_a", (64, 8)),
        Tensor("blk.0.attn_q.weight.lora_b", (8, 64)),
    ]
    found = []
    for name in "abc":
        path = tmp_path / name
        path.write_bytes(gguf_file(keys, tensors))
        found.append(BundleFile(path, path.stat().st_size, read_header(path)))
    return found


def loaded(count: int, wait_s: float = 60.0) -> LoadedAdapters:
    """With memory for so many adapters."""
    return LoadedAdapters(replace(Settings(), adapter_memory=count * SIZE, load_timeout=wait_s))


def test_the_least_recently_used_one_leaves(files: list[BundleFile]) -> None:
    async def run() -> None:
        worker, adapters = FakeWorker(), loaded(2)
        for file in (files[0], files[1], files[0], files[2]):
            async with adapters.using(worker, [file]):  # type: ignore[arg-type]
                assert file.path.name in worker.held
        assert worker.held == ["a", "c"]
        assert adapters.names == ("a", "c")
        assert adapters.size_bytes == 2 * SIZE

    asyncio.run(run())


def test_one_in_use_stays_and_others_wait_for_it(files: list[BundleFile]) -> None:
    async def run() -> None:
        worker, adapters, entered = FakeWorker(), loaded(1), asyncio.Event()

        async def second() -> None:
            async with adapters.using(worker, [files[1]]):  # type: ignore[arg-type]
                entered.set()

        async with adapters.using(worker, [files[0]]):  # type: ignore[arg-type]
            task = asyncio.create_task(second())
            async with adapters.using(worker, [files[0]]):  # type: ignore[arg-type]
                await asyncio.sleep(0)
            assert not entered.is_set()
            assert worker.held == ["a"]
        await task
        assert worker.held == ["b"]

    asyncio.run(run())


def test_who_waits_for_too_long_is_told_why(files: list[BundleFile]) -> None:
    async def run() -> None:
        worker, adapters = FakeWorker(), loaded(1, wait_s=0.01)
        async with adapters.using(worker, [files[0]]):  # type: ignore[arg-type]
            with pytest.raises(CapacityError, match="HEARTH_ADAPTER_MEMORY"):
                async with adapters.using(worker, [files[1]]):  # type: ignore[arg-type]
                    raise AssertionError
        async with adapters.using(worker, [files[1]]):  # type: ignore[arg-type]
            assert worker.held == ["b"]

    asyncio.run(run())


def test_more_than_the_memory_for_all_is_refused(files: list[BundleFile]) -> None:
    async def run() -> None:
        with pytest.raises(InsufficientMemory, match="HEARTH_ADAPTER_MEMORY"):
            async with loaded(1).using(FakeWorker(), files[:2]):  # type: ignore[arg-type]
                raise AssertionError

    asyncio.run(run())


def test_all_tensors_count_whatever_the_file_says(tmp_path: Path) -> None:
    """Those of DoRA too."""
    keys = {
        "general.type": text("adapter"),
        "general.architecture": text("llama"),
        CHECKPOINT.config: text("{}"),
        CHECKPOINT.parameters: u32(1),
    }
    tensors = [
        Tensor("blk.0.attn_q.weight.lora_a", (64, 8)),
        Tensor("blk.0.attn_q.weight.lora_b", (8, 64)),
        Tensor("blk.0.attn_q.weight.lora_gain", (64,)),
    ]
    (tmp_path / "a").write_bytes(gguf_file(keys, tensors))
    header = read_header(tmp_path / "a")
    assert header.parameter_count == 1
    file = BundleFile(tmp_path / "a", header.file_size_bytes, header)

    async def run() -> None:
        adapters = loaded(2)
        async with adapters.using(FakeWorker(), [file]):  # type: ignore[arg-type]
            assert adapters.size_bytes == SIZE + WEIGHT_BYTES * 64

    asyncio.run(run())


def test_a_refused_adapter_is_not_there_and_counts_for_nothing(files: list[BundleFile]) -> None:
    async def run() -> None:
        worker, adapters = FakeWorker(), loaded(2)
        worker.refuses = {"a"}
        with pytest.raises(ModelLoadFailed):
            async with adapters.using(worker, [files[0]]):  # type: ignore[arg-type]
                raise AssertionError
        assert (adapters.names, adapters.size_bytes) == ((), 0)

    asyncio.run(run())


def test_a_load_that_is_given_up_is_done_again(files: list[BundleFile]) -> None:
    async def run() -> None:
        worker, adapters = FakeWorker(), loaded(2)
        worker.blocked = asyncio.Event()

        async def use() -> None:
            async with adapters.using(worker, [files[0]]):  # type: ignore[arg-type]
                assert worker.held == ["a"]

        task = asyncio.create_task(use())
        for _ in range(200):
            if adapters.names:
                break
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert adapters.size_bytes == SIZE  # whether the worker has it is not known
        worker.blocked = None
        await use()
        await adapters.drop(worker, ["a", "b"])  # type: ignore[arg-type]
        assert worker.held == []
        assert adapters.names == ()

    asyncio.run(run())


def test_one_in_use_is_not_dropped(files: list[BundleFile]) -> None:
    async def run() -> None:
        worker, adapters = FakeWorker(), loaded(2)
        async with adapters.using(worker, [files[0]]):  # type: ignore[arg-type]
            await adapters.drop(worker, ["a"])  # type: ignore[arg-type]
            assert worker.held == ["a"]

    asyncio.run(run())
