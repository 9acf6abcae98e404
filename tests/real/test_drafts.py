"""Published weights say the same with drafts and without, whatever proposes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.backends.backend import LoadedBackend
from runner.backends.llamacpp import load
from runner.engine.draft_model import DraftModel
from runner.engine.grammar import Grammars
from runner.engine.speculation import Speculation
from runner.types import LoadPlan
from tests.benchmarks.speculation import Hearth
from tests.benchmarks.speculation_cases import CASES

FOLDER = Path(os.environ.get("HEARTH_REAL_MODELS", Path.home() / ".cache" / "hearth-models"))
WEIGHTS = FOLDER / "SmolLM2-135M-Instruct.Q4_1.gguf"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not WEIGHTS.exists(), reason=f"{WEIGHTS.name} is not on this machine"),
]


def loaded(draft_tokens: int) -> LoadedBackend:
    plan = LoadPlan(str(WEIGHTS), "llamacpp", 2048, 2048, 1, draft_tokens=draft_tokens)
    return load(plan, lambda _share: None)


@pytest.fixture(scope="module")
def model() -> Iterator[LoadedBackend]:
    found = loaded(64)
    yield found
    found.backend.close()


@pytest.mark.parametrize("source", ["lookup", "lookup and draft model"])
def test_answers_are_those_without_drafts(model: LoadedBackend, source: str) -> None:
    grammars = Grammars(model.tokenizer)
    plain = Hearth(model, grammars, None)
    draft = DraftModel(loaded(0).backend) if "draft model" in source else None
    speculation = Speculation(32, draft, model.tokenizer.is_end)
    drafted = Hearth(model, grammars, speculation)
    for kind in ("edit", "code", "prose", "json"):
        numbers = [number for number, case in enumerate(CASES) if case.kind == kind][:2]
        for number in numbers:
            case = CASES[number]
            found = drafted.answer(source, number, case)
            assert found.text == plain.answer("without", number, case).text, case.question
    assert speculation.confirmed > 100
