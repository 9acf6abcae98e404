"""Answers with proposals are those without, in fewer steps."""

from __future__ import annotations

import json
from collections.abc import Sequence as Items

import pytest

from runner.backends.backend import Capacity, Row, SampledToken
from runner.engine.call_watch import CallWatch
from runner.engine.detokenize import TokenTexts
from runner.engine.draft_model import DraftModel
from runner.engine.engine import Engine
from runner.engine.grammar import Grammars
from runner.engine.lookup import PromptLookup
from runner.engine.running_sequence import RunningSequence
from runner.engine.sequence import Sequence
from runner.engine.speculation import Speculation
from runner.types import GenerateRequest, Grammar, SamplingParams
from tests.fake_backend import VOCABULARY, FakeBackend, FakeTokenizer

ORDER = b"abcdefghijklmnopqrstuvwxyz0123456789"
SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in ("first", "second", "third")},
    "required": ["first", "second", "third"],
    "additionalProperties": False,
}
OBJECT = '{"first": 1, "second": 22, "third": 333}'


def backend() -> FakeBackend:
    return FakeBackend(Capacity(500, 4, 140, 64, VOCABULARY, 1, True, draft_tokens=64))


class Hasty(FakeBackend):
    """Says what the large model will say: the next letter of ORDER."""

    def step(self, rows: Items[Row]) -> list[SampledToken]:
        return [
            SampledToken(
                one.sequence,
                ORDER[(ORDER.index(self.tokens(one.sequence)[-1]) + 1) % len(ORDER)],
            )
            for one in super().step(rows)
        ]


def answer(
    speculation: Speculation | None,
    text: bytes,
    grammar: Grammar | None = None,
    **params: float,
) -> tuple[str, int]:
    """The answer and the number of steps."""
    own = backend()
    engine = Engine(own, FakeTokenizer(), speculation=speculation, clock=lambda: float(own.steps))
    sampling = SamplingParams(**{"temperature": 0.0, **params})  # type: ignore[arg-type]
    grammars = Grammars(FakeTokenizer())
    matcher = None if grammar is None else grammars.matcher(grammar)
    engine.submit(GenerateRequest("r", sampling, max_tokens=60), list(text), matcher=matcher)
    said = ""
    while engine.busy:
        outcome = engine.step()
        assert not outcome.errors
        said += "".join(delta.text for _, delta in outcome.deltas)
    return said, own.steps


def test_a_draft_model_that_is_right_saves_steps() -> None:
    plain, steps = answer(None, ORDER)
    drafted, fewer = answer(Speculation(8, DraftModel(Hasty(backend().capacity))), ORDER)
    assert plain == drafted
    assert steps > 30
    assert fewer < steps / 2


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_repeated_answer_is_found_in_the_past(temperature: float) -> None:
    prompt = b"over and over and over and over and over and "
    sampling = {"temperature": temperature, "seed": 7}
    plain, steps = answer(None, prompt, **sampling)
    drafted, fewer = answer(Speculation(8), prompt, **sampling)
    assert plain == drafted
    assert fewer < steps


def test_what_a_grammar_forces_is_proposed() -> None:
    grammar = Grammar("json_schema", json.dumps(SCHEMA))
    plain, steps = answer(None, OBJECT.encode(), grammar)
    speculation = Speculation(8)
    drafted, fewer = answer(speculation, OBJECT.encode(), grammar)
    assert plain == drafted == OBJECT
    assert fewer < 0.7 * steps
    assert speculation.confirmed > 0.7 * speculation.proposed


@pytest.mark.parametrize("text", [b"{'one': 1}", b'{"first": "x", "second": [1], "first": 2}'])
def test_a_grammar_that_the_past_does_not_match_is_kept(text: bytes) -> None:
    grammar = Grammar("json_schema", json.dumps(SCHEMA))
    plain, _ = answer(None, text * 2, grammar)
    drafted, _ = answer(Speculation(8), text * 2, grammar)
    assert plain == drafted
    assert json.loads(drafted).keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]


def test_a_call_that_begins_within_a_draft_is_held_to_its_grammar() -> None:
    """The first tokens of the call are proposed too, and only those before it confirmed free."""
    text = b"say <call>{'a': 1} and "
    said = []
    for speculation in (None, Speculation(8)):
        own = backend()
        engine = Engine(own, FakeTokenizer(), speculation=speculation, clock=lambda: 0.0)
        grammars = Grammars(FakeTokenizer())
        lark = 'start: "<call>" /\\{"b": [0-9]\\}/'
        watch = grammars.watch(Grammar("lark", lark, markers=("<call>",), begins="<call>"))
        assert isinstance(watch, CallWatch)
        sampling = SamplingParams(temperature=0.0)
        engine.submit(GenerateRequest("r", sampling, max_tokens=60), list(text * 3), matcher=watch)
        parts = []
        while engine.busy:
            parts += [delta.text for _, delta in engine.step().deltas]
        said.append("".join(parts))
    assert said[0] == said[1]
    assert '<call>{"b": ' in said[0]
    assert speculation is not None
    assert speculation.confirmed


@pytest.mark.parametrize(("step_s", "sequences", "votes"), [
    (0.033, 1, True), (0.033, 4, True), (0.0004, 1, False), (0.004, 8, False),
])  # fmt: skip
def test_votes_take_little_of_a_step(
    monkeypatch: pytest.MonkeyPatch, step_s: float, sequences: int, votes: bool
) -> None:
    asked = []

    def follow(lookup: PromptLookup, decoding: Items[RunningSequence], *, votes: bool) -> None:
        asked.append(votes)

    monkeypatch.setattr(PromptLookup, "follow", follow)
    monkeypatch.setattr(PromptLookup, "propose", lambda lookup, running, limit: ([], []))
    speculation = Speculation(8)
    texts = TokenTexts(FakeTokenizer())
    decoding = [
        RunningSequence(Sequence(GenerateRequest(str(n)), [1, 2], 100, 0, 0.0, texts), n)
        for n in range(sequences)
    ]
    speculation.propose(decoding, 8)
    speculation.observe(1, 0, 1, step_s)
    speculation.propose(decoding, 8)
    assert asked == [False, votes]  # nothing is known at first
