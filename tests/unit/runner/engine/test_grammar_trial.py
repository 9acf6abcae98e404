from __future__ import annotations

import resource

import pytest

from runner.engine import grammar_trial
from runner.engine.grammar_trial import LIMIT_S, compile_in_child
from runner.errors import CapacityError, InvalidRequest


def test_what_would_never_be_compiled_ends_by_the_processor_time_that_it_took() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(InvalidRequest, match="p: it takes too long to compile"):
        compile_in_child('{"grammars":[{"lark_grammar":"start: /a+/ start"}]}', "p")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert LIMIT_S * 0.9 < took_s < LIMIT_S + 3  # and what the start takes


@pytest.mark.parametrize("rule", ['"a"', "wrong"])
def test_what_is_right_or_soon_found_to_be_wrong_is_compiled(rule: str) -> None:
    compile_in_child(f'{{"grammars":[{{"lark_grammar":{f"start: {rule}"!r}}}]}}', "p")


def test_that_the_machine_is_busy_says_nothing_about_a_grammar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar_trial, "TIMEOUT_S", 0.0)
    with pytest.raises(CapacityError, match="p: the machine is too busy"):
        compile_in_child('{"grammars":[{"lark_grammar":"start: \\"a\\""}]}', "p")
