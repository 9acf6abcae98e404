"""Embeddings of a model that generates, beside its conversations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from runner.backends.backend import Capacity, Row, RowFault, SampledToken
from runner.engine.engine import Engine
from runner.engine.step_output import StepOutput
from runner.errors import ContextOverflow, HearthError
from runner.types import Embeddings, GenerateRequest
from tests.fake_backend import VOCABULARY, FakeBackend, FakeTokenizer

INPUTS = [[97] * 40, [98, 99], [97] * 30, [100]]


class Faulty(FakeBackend):
    """The rows with these tokens have no usable states."""

    wrong: Sequence[int] = ()
    nan: Sequence[int] = ()

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        sampled = super().step(rows)
        for row in rows:
            if row.hidden is not None and list(row.tokens) == self.nan:
                row.hidden.values = [math.nan]
        faulty = [row.sequence for row in rows if list(row.tokens) == self.wrong]
        if faulty:
            raise RowFault("no numbers", sampled=sampled, sequences=faulty)
        return sampled


def engine(**capacity: int) -> tuple[Faulty, Engine]:
    sizes = {"pool_tokens": 500, "max_sequences": 4, "batch_tokens": 16, **capacity}
    backend = Faulty(
        Capacity(
            context_length=100,
            vocabulary=VOCABULARY,
            block_size=1,
            partial_share=True,
            hidden_states=True,
            **sizes,
        )
    )
    return backend, Engine(backend, FakeTokenizer(), clock=lambda: 0.0)


def finish(made: Engine) -> StepOutput:
    total = StepOutput()
    for _ in range(500):
        if not made.busy:
            return total
        output = made.step()
        total.deltas += output.deltas
        total.errors += output.errors
        total.embeddings += output.embeddings
    raise AssertionError("the engine does not come to an end")


def only(output: StepOutput) -> Embeddings:
    ((id, embeddings),) = output.embeddings
    assert id == "e"
    assert not output.errors
    assert not output.deltas
    return embeddings


def test_vectors_have_length_one_the_order_of_the_inputs_and_depend_on_them_alone() -> None:
    _, made = engine()
    made.embed(GenerateRequest("e"), INPUTS, truncate=False)
    embeddings = only(finish(made))
    assert embeddings.prompt_tokens == sum(map(len, INPUTS))
    for vector, tokens in zip(embeddings.vectors, INPUTS, strict=True):
        assert math.hypot(*vector) == pytest.approx(1.0)
        _, other = engine(batch_tokens=64)
        other.embed(GenerateRequest("e"), [tokens], truncate=False)
        assert only(finish(other)).vectors == (pytest.approx(vector),)


def test_a_prefix_is_computed_once_and_conversations_go_first() -> None:
    backend, made = engine(max_sequences=2)
    made.embed(GenerateRequest("e"), INPUTS, truncate=False)
    made.submit(GenerateRequest("chat", max_tokens=2), [101] * 10)
    made.step()
    assert made.scheduler.decoding[0].id == "chat"
    output = finish(made)
    assert [id for id, _ in output.embeddings] == ["e"]
    assert "".join(delta.text for _, delta in output.deltas) == "e"
    assert backend.computed_tokens < 10 + 1 + sum(map(len, INPUTS))


def test_an_input_may_be_as_long_as_the_context_and_what_is_longer_is_cut_or_refused() -> None:
    _, made = engine()
    with pytest.raises(ContextOverflow):
        made.embed(GenerateRequest("e"), [[97] * 101], truncate=False)
    made.embed(GenerateRequest("e"), [[97] * 101], truncate=True)
    assert only(finish(made)).prompt_tokens == 100


def test_a_cancelled_request_leaves_with_all_its_inputs() -> None:
    _, made = engine()
    made.embed(GenerateRequest("e"), INPUTS, truncate=False)
    made.step()
    assert made.cancel("e")
    assert not made.cancel("e")
    assert made.counters.cancelled == 1
    assert finish(made) == StepOutput()
    made.embed(GenerateRequest("e"), INPUTS, truncate=False)
    assert len(only(finish(made)).vectors) == 4


@pytest.mark.parametrize("fault", ["wrong", "nan"])
def test_an_input_that_fails_ends_its_request_with_one_error(fault: str) -> None:
    backend, made = engine()
    setattr(backend, fault, INPUTS[1])
    made.embed(GenerateRequest("e"), INPUTS, truncate=False)
    made.embed(GenerateRequest("other"), INPUTS[2:], truncate=False)
    output = finish(made)
    assert [id for id, _ in output.errors] == ["e"]
    assert isinstance(output.errors[0][1], HearthError)
    assert [id for id, _ in output.embeddings] == ["other"]
