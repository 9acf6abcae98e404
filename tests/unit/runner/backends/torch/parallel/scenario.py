"""A few steps of two sequences, by one process or by several that gloo connects."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from runner.backends.backend import Followers, HiddenState, ImagePart, Row
from runner.backends.torch.backend import TorchBackend
from runner.backends.torch.batch import StepInputs
from runner.backends.torch.executor import AdapterSet, Executor, StepOutputs
from runner.backends.torch.loading import loader
from runner.backends.torch.loading.loader import LoadedModel
from runner.backends.torch.loading.memory_plan import TorchMemoryPlan, plan_memory
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.parallel.communication import NO_RANKS, Ranks
from runner.backends.torch.parallel.follower import join
from runner.backends.torch.parallel.rank_executor import follow
from runner.errors import ModelLoadFailed
from runner.types import Adapters, LoadPlan, SamplingParams
from runner.worker.ranks import FirstProcess, send_file
from tests.conformance.convert.weights import weight
from tests.conformance.logits.cases import CASES, QUANTIZED
from tests.conformance.logits.quantize import CONFIGS, quantized, write_tensors
from tests.unit.runner.backends.torch.models.running import GOLDEN

Tensor = Any
LIMIT_S = 60.0
GREEDY = SamplingParams(temperature=0)
IMAGE = 126  # vectors in a step of two more tokens, which four ranks share without a rest
PROCESSES = multiprocessing.get_context("forkserver")
# What takes seconds to import is imported once, and forked.
PROCESSES.set_forkserver_preload([__name__])


@dataclass(slots=True)
class Answers:
    """logits [tokens, vocabulary] of every output of the steps, and the tokens chosen; refusals: of
    adapters, in their order."""

    logits: Tensor
    tokens: list[list[int]]
    states: list[float]
    refusals: list[str]


def plan_of(path: Path, **changes: Any) -> LoadPlan:
    values: dict[str, Any] = {
        "path": str(path),
        "backend": "torch",
        "context_length": 256,
        "pool_tokens": 512,
        "max_sequences": 4,
        "batch_tokens": 256,
        "threads": 1,
    }
    return LoadPlan(**{**values, **changes})


@dataclass(frozen=True, slots=True)
class Case:
    """Prompts of a model, which is loaded by plan. packed: its weights stay quantized, as they do
    on a GPU. files: of adapters by their names; adapters: those of each prompt."""

    plan: LoadPlan
    prompts: Sequence[Sequence[int]]
    steps: int = 6
    packed: bool = False
    native: bool = True
    files: Mapping[str, Path] = field(default_factory=dict)
    adapters: Sequence[Adapters] = ()

    def load(self, ranks: Ranks) -> LoadedModel:
        def planned(*given: Any, **named: Any) -> TorchMemoryPlan:
            found = plan_memory(*given, **named)
            found = replace(found, narrow=False)  # products in float32
            found = replace(found, native=found.native and self.native)
            return replace(found, packed=True, native=False) if self.packed else found

        source = open_source(Path(self.plan.path))
        with mock.patch.object(loader, "plan_memory", planned):
            return loader.load_model(self.plan, source, lambda _share: None, ranks)


def answers(case: Case) -> Answers:
    """What a model gives in this process alone, or in plan.ranks ones."""
    if case.plan.ranks == 1:
        return _lead(case, NO_RANKS, None)
    with tempfile.TemporaryDirectory() as folder:
        return _together(case, f"{folder}/store")


def _together(case: Case, store: str) -> Answers:
    pipes = [PROCESSES.Pipe() for _ in range(case.plan.ranks - 1)]
    result, sending = PROCESSES.Pipe(duplex=False)
    leader = PROCESSES.Process(
        target=_first, args=(case, store, [ours for ours, _ in pipes], sending)
    )
    others = [
        PROCESSES.Process(target=_other, args=(case, rank, store, theirs))
        for rank, (_, theirs) in enumerate(pipes, start=1)
    ]
    processes = [leader, *others]
    try:
        for process in processes:
            process.start()
        sending.close()
        for pair in pipes:
            for end in pair:
                end.close()
        assert result.poll(LIMIT_S), "the ranks gave no answer"
        found = result.recv()
        for process in processes:
            process.join(LIMIT_S)
    finally:
        for process in processes:
            process.kill()
    if isinstance(found, str):
        raise AssertionError(found)
    logits, *rest = found
    return Answers(torch.tensor(logits), *rest)


def _first(case: Case, store: str, followers: list[Connection], result: Connection) -> None:
    try:
        ranks = join(case.plan, 0, store)
        found = _lead(case, ranks, Pipes(ranks, followers))
        result.send((found.logits.tolist(), found.tokens, found.states, found.refusals))
    except BaseException as error:
        result.send(f"the first rank: {type(error).__name__}: {error}")
        raise


def _other(case: Case, rank: int, store: str, connection: Connection) -> None:
    loaded = case.load(join(case.plan, rank, store))
    with torch.inference_mode():
        executor = loader.create_executor(case.plan, loaded)
    try:
        follow(executor, FirstProcess(connection))
    except EOFError:
        return


@dataclass(slots=True)
class Pipes(Followers):
    """Followers at the other ends of pipes."""

    joined: Ranks
    connections: Sequence[Connection]

    def broadcast(self, message: bytes, file: Path | None = None) -> None:
        with ExitStack() as opened:
            content = None if file is None else opened.enter_context(file.open("rb"))
            for connection in self.connections:
                connection.send_bytes(message)
                if content is not None:
                    send_file(connection, content)

    def wait_loaded(self) -> None:
        """They are as soon as they compute."""

    def abandon(self, reason: str) -> NoReturn:
        raise SystemExit(reason)


@dataclass(slots=True)
class Recording(Executor):
    """Keeps the logits that another executor gives."""

    own: Executor
    logits: list[Tensor] = field(default_factory=list)

    @property
    def caches(self) -> Any:  # type: ignore[override]
        return self.own.caches

    @property
    def adapters(self) -> AdapterSet | None:  # type: ignore[override]
        return self.own.adapters

    def compute(self, inputs: StepInputs, given: Tensor | None = None) -> StepOutputs:
        found = self.own.compute(inputs, given)
        if found.logits is not None:
            self.logits.append(found.logits.clone())
        return found


def _lead(case: Case, ranks: Ranks, followers: Followers | None) -> Answers:
    loaded, prompts = case.load(ranks), case.prompts
    with torch.inference_mode():
        backend = loader.generator(case.plan, loaded, followers)
    assert isinstance(backend, TorchBackend)
    recording = backend._executor = Recording(backend._executor)
    refusals = _load_adapters(backend, case.files)
    samplers = [backend.create_sampler(GREEDY) for _ in prompts]
    acting = [*case.adapters, *((),) * len(prompts)]
    # The first prompt in two chunks, the second beside the last of them
    cut = len(prompts[0]) // 2
    backend.step([Row(0, prompts[0][:cut], 0, adapters=acting[0])])
    rows = [Row(0, prompts[0][cut:], cut, samplers[0], adapters=acting[0])]
    rows += [
        Row(at, prompts[at], 0, samplers[at], adapters=acting[at]) for at in range(1, len(prompts))
    ]
    tokens: list[list[int]] = [[] for _ in prompts]
    lengths = [len(prompt) for prompt in prompts]
    for _ in range(case.steps):
        for one in backend.step(rows):
            tokens[one.sequence].append(one.token)
        rows = [
            Row(at, [found[-1]], lengths[at] + len(found) - 1, samplers[at], adapters=acting[at])
            for at, found in enumerate(tokens)
        ]
    backend.release(2)
    backend.trim(0, 5)
    backend.share(0, 3, 3)  # a block that both hold, into which the next row writes
    return Answers(torch.cat(recording.logits), tokens, _hidden_states(backend), refusals)


def _load_adapters(backend: TorchBackend, files: Mapping[str, Path]) -> list[str]:
    """All that are not refused, the first of them a second time."""
    refusals, loaded = [], []
    for name, file in files.items():
        try:
            backend.load_adapter(name, file)
            loaded.append(name)
        except ModelLoadFailed as error:
            refusals.append(error.message)
    for name in loaded[:1]:
        backend.unload_adapter(name)
        backend.load_adapter(name, files[name])
    return refusals


def _hidden_states(backend: TorchBackend) -> list[float]:
    """Of a row of the shared sequence, and of one of vectors beside it."""
    image = ImagePart(_vectors(IMAGE, backend.capacity.input_width), IMAGE)
    states = HiddenState(), HiddenState()
    backend.step(
        [
            Row(3, [7, 9], 3, hidden=states[0]),
            Row(2, [-1] * IMAGE, 0, hidden=states[1], image=image),
        ]
    )
    return [value for state in states for value in state.values]


def _vectors(count: int, width: int) -> NDArray[np.float32]:
    numbers = np.arange(count * width, dtype=np.float32).reshape(count, width)
    return np.sin(numbers, dtype=np.float32)


def differences(found: Answers, wanted: Answers) -> tuple[float, float]:
    """Of the logits and of the state, the largest error relative to the largest value."""

    def largest(left: Tensor, right: Tensor) -> float:
        return float((left - right).abs().max() / right.abs().max())

    states = torch.tensor(found.states), torch.tensor(wanted.states)
    return largest(found.logits, wanted.logits), largest(*states)


def write_wide(folder: Path, kind: str) -> Path:
    """A quantized case; a feed-forward of 96 values, three groups, has 128."""
    name = QUANTIZED[kind]
    config = {**CASES[name], "quantization_config": CONFIGS[kind]}
    wider: dict[int, int] = {}
    if config["intermediate_size"] == 96 and "num_experts" not in config:
        wider, config["intermediate_size"] = {96: 128, 192: 256}, 128
    tensors = {
        key: torch.from_numpy(
            weight(
                config["model_type"],
                key,
                tuple(wider.get(size, size) if "mlp" in key else size for size in shape),
            )
        )
        for key, shape in GOLDEN[name]["tensors"].items()
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", quantized(kind, tensors)[0])
    return folder
