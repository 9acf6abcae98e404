"""A rank has its part of the weights in memory, and at no time much more: rows in the file's own
pages, which all share, and copies of the columns."""

from __future__ import annotations

import json
import sys
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.backends.torch.parallel.communication import Ranks
from runner.backends.torch.parallel.rank_layout import RankLayout
from tests.conformance.logits.quantize import write_tensors
from tests.unit.runner.backends.torch.checkpoints import LLAMA, llama_tensors
from tests.unit.runner.backends.torch.parallel.scenario import LIMIT_S, PROCESSES

CONFIG: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 10,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}
READ_BYTES = 1 << 20  # the buffer by which columns are read
COPIED = ("o_proj.weight", "down_proj.weight", "norm.weight")  # of a map, some columns
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def private_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def measure(folder: Path, layout: RankLayout, result: Connection) -> None:
    """Send the bytes of the rank's weights, those of them that lie in the file's pages, and by how
    much the process's own memory grew at most while they were loaded."""
    torch.set_num_threads(1)
    ranks = Ranks(layout, object())  # type: ignore[arg-type]
    place = WeightPlacement(torch.float32, torch.device("cpu"), 64, ranks=ranks)
    source = open_source(folder).part(layout)
    sizes = {name: 4 * prod(source.tensors.shape(name)) for name in source.tensors.names}
    copied = COPIED if layout.tensor > 1 else ()
    mapped = sum(size for name, size in sizes.items() if not name.endswith(copied))
    before, found = private_bytes(), [0]
    with torch.inference_mode():
        model = build_model(source, place, lambda _share: found.append(private_bytes() - before))
    found.append(private_bytes() - before)
    result.send((sum(sizes.values()), mapped, max(found)))
    del model


@pytest.mark.parametrize("split", [(2, 1), (4, 1), (1, 2), (2, 2)])
def test_a_rank_takes_its_share_and_a_twentieth_at_most(
    split: tuple[int, int], checkpoint: Path
) -> None:
    whole = (checkpoint / "model.safetensors").stat().st_size
    tensor, pipeline = split
    received, sending = PROCESSES.Pipe(duplex=False)
    layout = RankLayout(tensor, pipeline, tensor * pipeline - 1)
    process = PROCESSES.Process(target=measure, args=(checkpoint, layout, sending))
    process.start()
    sending.close()
    assert received.poll(LIMIT_S)
    weights, mapped, own = received.recv()
    process.join(LIMIT_S)
    assert weights == pytest.approx(whole / layout.ranks, rel=0.05)
    assert weights <= own + mapped <= 1.05 * whole / layout.ranks + READ_BYTES


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tensors(folder / "model.safetensors", llama_tensors(CONFIG))
    return folder
