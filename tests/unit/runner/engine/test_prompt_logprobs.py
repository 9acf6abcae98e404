"""Log-probabilities of prompts through the engine, with the echo backend as oracle: there they
depend on all tokens before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from runner.backends.backend import Capacity, Row, SampledToken, TargetLogprobs
from runner.engine.engine import Engine
from runner.errors import ContextOverflow, HearthError, InternalError, Unsupported
from runner.types import Delta, GenerateRequest, PromptToken
from tests.fake_backend import VOCABULARY, FakeBackend, FakeTokenizer

TOKENIZER = FakeTokenizer()


class Watched(FakeBackend):
    """Remembers the most tokens that were scored in one step; spoiled: it gives NaN."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__(capacity)
        self.most = 0
        self.spoiled = False

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        sampled = super().step(rows)
        scored = [row.scoring for row in rows if row.scoring is not None]
        self.most = max(self.most, sum(len(scoring.targets) for scoring in scored))
        if self.spoiled:
            for scoring in scored:
                scoring.logprobs = [(float("nan"), ()) for _ in scoring.logprobs]
        return sampled


def engine_of(*, score: int = 512, pool: int = 4096, batch: int = 512) -> tuple[Engine, Watched]:
    backend = Watched(Capacity(pool, 8, 256, batch, VOCABULARY, 1, True, score_tokens=score))
    return Engine(backend, TOKENIZER, clock=lambda: 0.0), backend


def submit(engine: Engine, id: str, tokens: Sequence[int], **fields: object) -> None:
    asked = {"prompt_logprobs": 1, **fields}
    engine.submit(GenerateRequest(id, **asked), tokens)  # type: ignore[arg-type]


def run(engine: Engine) -> tuple[dict[str, list[Delta]], dict[str, HearthError]]:
    deltas: dict[str, list[Delta]] = {}
    errors: dict[str, HearthError] = {}
    for _ in range(5000):
        if not engine.busy:
            return deltas, errors
        outcome = engine.step()
        for id, delta in outcome.deltas:
            deltas.setdefault(id, []).append(delta)
        errors.update(outcome.errors)
    raise AssertionError("the engine does not come to an end")


def told(deltas: Sequence[Delta]) -> list[PromptToken]:
    return [item for delta in deltas for item in delta.prompt]


def expected(tokens: Sequence[int]) -> list[float]:
    """What the backend itself gives in one row."""
    echo = FakeBackend(Capacity(4096, 1, 256, 512, VOCABULARY, 1, True, score_tokens=512))
    scoring = TargetLogprobs(tokens[1:], 1)
    echo.step([Row(0, tokens, 0, scoring=scoring)])
    return [nats for nats, _ in scoring.logprobs]


PROMPT = TOKENIZER.encode("the fire is warm and bright", add_bos=True, parse_special=True)


@pytest.mark.parametrize("score", [1, 4, 512])
def test_each_token_of_the_prompt_is_told_once_in_order_whatever_the_chunks(score: int) -> None:
    engine, backend = engine_of(score=score)
    submit(engine, "a", PROMPT, max_tokens=3)
    deltas, _ = run(engine)
    tokens = told(deltas["a"])
    assert [item.token for item in tokens] == PROMPT
    assert [item.logprob for item in tokens] == [None, *expected(PROMPT)]
    assert [len(item.top) for item in tokens] == [0] + [1] * (len(PROMPT) - 1)
    assert tokens[0].piece == b"<|begin|>"
    assert backend.most <= score
    assert "".join(delta.text for delta in deltas["a"]) == "the"


def test_with_no_tokens_to_generate_the_prompt_is_told_and_nothing_sampled() -> None:
    engine, _ = engine_of()
    submit(engine, "a", PROMPT, max_tokens=0)
    deltas, _ = run(engine)
    assert len(told(deltas["a"])) == len(PROMPT)
    finish = deltas["a"][-1].finish
    assert finish is not None
    assert (finish.reason, finish.usage.completion_tokens) == ("length", 0)
    assert engine.counters.completion_tokens == 0


def test_a_prompt_as_long_as_the_context_can_be_told_but_not_continued() -> None:
    engine, _ = engine_of()
    whole = [65 + at % 20 for at in range(256)]
    with pytest.raises(ContextOverflow):
        submit(engine, "a", whole, max_tokens=1)
    submit(engine, "b", whole, max_tokens=0)
    deltas, _ = run(engine)
    assert len(told(deltas["b"])) == 256


def test_a_single_token_is_told_without_a_number() -> None:
    engine, _ = engine_of()
    submit(engine, "a", [65], max_tokens=0)
    deltas, _ = run(engine)
    assert told(deltas["a"]) == [PromptToken(65, b"A", None)]


def test_no_position_is_taken_from_the_prefix_cache() -> None:
    engine, _ = engine_of()
    submit(engine, "a", PROMPT, prompt_logprobs=None)
    run(engine)
    submit(engine, "b", PROMPT, max_tokens=2)
    deltas, _ = run(engine)
    assert [item.logprob for item in told(deltas["b"])] == [None, *expected(PROMPT)]
    finish = deltas["b"][-1].finish
    assert finish is not None
    assert finish.usage.cached_tokens == 0


def test_what_is_told_can_be_the_prefix_of_others() -> None:
    engine, _ = engine_of()
    submit(engine, "a", PROMPT, max_tokens=0)
    run(engine)
    submit(engine, "b", PROMPT, prompt_logprobs=None, max_tokens=2)
    deltas, _ = run(engine)
    finish = deltas["b"][-1].finish
    assert finish is not None
    assert finish.usage.cached_tokens == len(PROMPT) - 1
    assert told(deltas["b"]) == []


def test_preemption_tells_nothing_twice() -> None:
    engine, _ = engine_of(pool=120, score=8)
    prompts = {str(number): [65 + number] * 40 for number in range(4)}
    for id, tokens in prompts.items():
        submit(engine, id, tokens, max_tokens=30)
    deltas, errors = run(engine)
    assert not errors
    assert engine.scheduler.preemptions > 0
    for id, tokens in prompts.items():
        assert [item.logprob for item in told(deltas[id])] == [None, *expected(tokens)]


def test_numbers_that_are_none_end_the_request_and_no_other() -> None:
    engine, backend = engine_of()
    backend.spoiled = True
    submit(engine, "a", PROMPT, max_tokens=3)
    submit(engine, "b", PROMPT, prompt_logprobs=None, max_tokens=3)
    deltas, errors = run(engine)
    assert isinstance(errors["a"], InternalError)
    assert "".join(delta.text for delta in deltas["b"]) == "the"


def test_a_backend_that_gives_none_refuses() -> None:
    engine, _ = engine_of(score=0)
    with pytest.raises(Unsupported):
        submit(engine, "a", PROMPT)
    assert not engine.busy
