"""Engines over the echo backend, with what they answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runner.backends.backend import Backend, Capacity, Row, SampledToken
from runner.engine.engine import Engine
from runner.engine.pool_growth import PoolGrowth
from runner.errors import HearthError
from runner.types import Delta, Finish, GenerateRequest, SamplingParams
from tests.fake_backend import VOCABULARY, FakeBackend, FakeTokenizer

TOKENIZER = FakeTokenizer()


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_bos=True, parse_special=True)


class Recorder(FakeBackend):
    """An echo backend that remembers its batches, and can be told to fail."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__(capacity)
        self.batches: list[list[tuple[int, int]]] = []  # (sequence, tokens) of each row
        self.faults: list[Exception] = []

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        if self.faults:
            raise self.faults.pop()
        self.batches.append([(row.sequence, len(row.tokens)) for row in rows])
        return super().step(rows)


class Run:
    """An engine with what it answered so far."""

    def __init__(
        self,
        *,
        pool: int = 4096,
        sequences: int = 16,
        context: int = 1024,
        batch: int = 512,
        max_running: int | None = None,
        idle_tokens: int | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        growth: Callable[[Backend], PoolGrowth] | None = None,
    ) -> None:
        self.backend = Recorder(Capacity(pool, sequences, context, batch, VOCABULARY, 1, True))
        self.engine = Engine(
            self.backend,
            TOKENIZER,
            max_running=max_running,
            idle_tokens=idle_tokens,
            clock=clock,
        )
        if growth is not None:
            self.engine.scheduler.cache.growth = growth(self.backend)
        self.deltas: dict[str, list[Delta]] = {}
        self.errors: dict[str, HearthError] = {}
        self.first: list[str] = []  # ids by their first token
        self.ended: list[str] = []  # ids by their end

    def submit(self, id: str, text: str, **options: object) -> None:
        sampling = options.pop("sampling", SamplingParams())
        assert isinstance(sampling, SamplingParams)
        request = GenerateRequest(id, sampling, **options)  # type: ignore[arg-type]
        self.engine.submit(request, encode(text))

    def step(self) -> None:
        outcome = self.engine.step()
        for id, delta in outcome.deltas:
            if id not in self.deltas:
                self.first.append(id)
            self.deltas.setdefault(id, []).append(delta)
            if delta.finish is not None:
                self.ended.append(id)
        self.errors.update(outcome.errors)

    def finish(self, most_steps: int = 5000) -> Run:
        while self.engine.busy:
            most_steps -= 1
            assert most_steps > 0, "the engine does not come to an end"
            self.step()
        return self

    def text(self, id: str) -> str:
        return "".join(delta.text for delta in self.deltas[id])

    def end(self, id: str) -> Finish:
        finish = self.deltas[id][-1].finish
        assert finish is not None
        return finish
