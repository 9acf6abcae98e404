"""What a rank holds and sends in a step whose tokens the ranks share between split maps, beside one
in which each has them all."""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runner.backends.torch.batch import StepInputs
from runner.backends.torch.loading.loader import create_executor
from runner.backends.torch.parallel import communication
from runner.backends.torch.parallel.communication import (
    MIN_ROWS,
    DistributedCommunicator,
    rows_of,
)
from runner.backends.torch.parallel.follower import join
from tests.conformance.logits.quantize import write_tensors
from tests.unit.runner.backends.torch.checkpoints import LLAMA, llama_tensors
from tests.unit.runner.backends.torch.parallel.scenario import LIMIT_S, PROCESSES, Case, plan_of

TOKENS = 254
CONFIG: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 1024,
}


class StorageBytes(TorchDispatchMode):
    """peak: the most bytes of storages that operations have made and that live at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note((args, kwargs), made=False)
        found = func(*args, **(kwargs or {}))
        self._note(found, made=True)
        self.peak = max(self.peak, sum(self._sizes.values()))
        return found

    def _note(self, values: Any, *, made: bool) -> None:
        for tensor in tree_leaves(values):
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._sizes:
                self._sizes[storage._cdata] = storage.nbytes() if made else 0
                weakref.finalize(storage, self._sizes.pop, storage._cdata)


def written_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def measure(case: Case, rank: int, store: str, shares: bool, result: Connection) -> None:
    """Send the bytes that this rank sends in a step, and the most that its tensors take."""
    torch.set_num_threads(1)
    if not shares:
        communication.MIN_ROWS = TOKENS + 1
    loaded = case.load(join(case.plan, rank, store))
    with torch.inference_mode():
        executor = create_executor(case.plan, loaded)
        inputs = StepInputs(
            np.arange(TOKENS, dtype=np.int64) % 60,
            np.zeros(1, np.int64),
            np.array([TOKENS], np.int64),
            np.arange(-(-TOKENS // 16), dtype=np.int32).reshape(1, -1),
            0,
            outputs=[TOKENS - 1],
        )
        executor.compute(inputs)
        before = written_bytes()
        with StorageBytes() as storages:
            executor.compute(inputs)
        result.send((written_bytes() - before, storages.peak))


def in_ranks(target: Callable[..., None], case: Case, store: Path, *args: object) -> list[Any]:
    """What target sends from each rank of case."""
    ends = [PROCESSES.Pipe(duplex=False) for _ in range(case.plan.ranks)]
    processes = [
        PROCESSES.Process(target=target, args=(case, rank, str(store), *args, sending))
        for rank, (_, sending) in enumerate(ends)
    ]
    try:
        for process in processes:
            process.start()
        for _, sending in ends:
            sending.close()
        assert all(result.poll(LIMIT_S) for result, _ in ends)
        return [result.recv() for result, _ in ends]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "split", [(2, 1), *(pytest.param(each, marks=pytest.mark.slow) for each in ((4, 1), (2, 2)))]
)
def test_ranks_that_share_tokens_hold_less_and_send_no_more(
    split: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write_tensors(tmp_path / "model.safetensors", llama_tensors(CONFIG))
    tensor, pipeline = split
    plan = plan_of(
        tmp_path,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_length=1024,
        pool_tokens=1024,
        batch_tokens=TOKENS,
    )
    shared = in_ranks(measure, Case(plan, ()), tmp_path / "shared", True)
    whole = in_ranks(measure, Case(plan, ()), tmp_path / "whole", False)
    assert all(own[1] < 0.9 * other[1] for own, other in zip(shared, whole, strict=True))
    # The rest of a step that does not divide is sent as zeros: 2 tokens of 256 here.
    assert sum(sent for sent, _ in shared) < 1.01 * sum(sent for sent, _ in whole)


def exchange(case: Case, rank: int, store: str, result: Connection) -> None:
    """Send this rank's rows of a sum by each way to make it, and all rows."""
    communicator = join(case.plan, rank, store).communicator
    assert isinstance(communicator, DistributedCommunicator)
    x = torch.arange(300.0).view(100, 3) * 10**rank
    communicator.begin(len(x))
    rows = communicator.sum(x.clone())
    communicator._scatters_sums = True  # as NCCL; gloo has it too, by an all_reduce
    scattered = communicator.sum(x.clone())
    whole = communicator.whole(rows)
    result.send([found.tolist() for found in (rows, scattered, whole)])


def test_parts_of_a_sum_are_scattered_and_gathered_in_their_order(tmp_path: Path) -> None:
    case = Case(plan_of(tmp_path, tensor_parallel=3), ())
    total = (torch.arange(300.0).view(100, 3) * 111).tolist()
    padded = [*total, [0.0] * 3, [0.0] * 3]
    for rank, (rows, scattered, whole) in enumerate(in_ranks(exchange, case, tmp_path / "store")):
        assert rows == scattered == padded[34 * rank : 34 * rank + 34]
        assert whole == total


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_steps_of_few_tokens_are_not_shared(ranks: int) -> None:
    first = ranks * (MIN_ROWS - 1) + 1
    assert rows_of(first - 1, ranks) == first - 1
    assert [rows_of(tokens, ranks) for tokens in (first, ranks * MIN_ROWS)] == [MIN_ROWS] * 2
    assert rows_of(ranks * MIN_ROWS + 1, ranks) == MIN_ROWS + 1


def test_one_rank_has_all_tokens() -> None:
    assert [rows_of(tokens, 1) for tokens in (1, 100)] == [1, 100]
