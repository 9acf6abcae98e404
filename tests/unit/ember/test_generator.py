"""What ember is trained and measured on: repeatable, never shared, and true to its own schemas."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import islice
from random import Random

import pytest

from tests.ember import evaluate, facts, mixture, tables
from tests.ember.data import sample
from tests.ember.exchange import (
    LETTER_BREAK,
    Conversation,
    Exchange,
    Turn,
    held_out,
    normalise,
)
from tests.ember.grading import callable_with, last_number
from tests.ember.skills import arithmetic, letters, stories, tool_use
from tests.ember.toolbox.catalogue import ACTIONS
from tests.ember.toolbox.tools import draw_tool, held_out_name

SAMPLES = 1500
_LETTERS = re.compile(r"(?<![\w-])(?:[a-z]-)+[a-z](?![\w-])")


@pytest.fixture(scope="module")
def trained() -> list[Conversation]:
    """The head of the training stream."""
    return list(islice(mixture.stream(1), SAMPLES))


@pytest.fixture(scope="module")
def asked() -> list[Conversation]:
    """A small evaluation set."""
    return evaluate.questions(1, per_generator=8, tool_calls=60)


def test_a_seed_always_gives_the_same_conversations() -> None:
    first, second = (list(islice(mixture.stream(7), 50)) for _ in range(2))
    assert first == second
    assert first != list(islice(mixture.stream(8), 50))


def test_the_evaluation_set_of_a_seed_is_fixed() -> None:
    first, second = (evaluate.questions(3, per_generator=2, tool_calls=4) for _ in range(2))
    assert first == second


def _asked_under(conversation: Conversation, turn: Turn) -> tuple[str, str]:
    """The system message and the question: the same question under another name is another one."""
    first = conversation.turns[0]
    system = first.content if first.role == "system" else ""
    return system, normalise(turn.content)


def test_no_evaluated_question_is_ever_trained(
    trained: list[Conversation], asked: list[Conversation]
) -> None:
    seen = {
        _asked_under(each, turn) for each in trained for turn in each.turns if turn.role == "user"
    }
    keyed = [each for each in asked if not each.tools]
    assert keyed
    assert all(held_out(each.key) for each in keyed)
    questions = [each for each in keyed if each.skill != "follow-ups"]
    assert not [each for each in questions if _asked_under(each, each.turns[-2]) in seen]


def test_the_training_stream_draws_no_held_out_key(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Exchange] = []
    plain = mixture.draw

    def recording(*arguments: object) -> Exchange:
        drawn.append(plain(*arguments))  # type: ignore[arg-type]
        return drawn[-1]

    monkeypatch.setattr(mixture, "draw", recording)
    list(islice(mixture.stream(2), 300))
    assert len(drawn) > 200
    assert not [each.key for each in drawn if held_out(each.key)]


def test_evaluated_tools_have_names_that_training_never_shows(
    trained: list[Conversation], asked: list[Conversation]
) -> None:
    shown = {tool["function"]["name"] for each in trained for tool in each.tools}
    offered = {tool["function"]["name"] for each in asked for tool in each.tools}
    assert len(shown) > 300
    assert len(offered) > 60
    assert not shown & offered
    assert all(held_out_name(name) for name in offered)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_generated_call_fits_its_own_schema(split: str) -> None:
    rng = Random(split)
    for _ in range(600):
        tool = draw_tool(rng, split)  # type: ignore[arg-type]
        assert callable_with(tool.ask(rng).call, (tool.spec,)), tool.spec


def test_called_values_stand_in_the_question() -> None:
    rng = Random(4)
    for _ in range(400):
        ask = draw_tool(rng, "train").ask(rng)
        for value in ask.call.arguments.values():
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                assert str(value).lower() in ask.question.lower(), ask


def test_there_are_many_tools_and_kinds_of_schemas() -> None:
    rng = Random(5)
    specs = [draw_tool(rng, "train").spec["function"] for _ in range(2000)]
    assert len({spec["name"] for spec in specs}) > 900
    assert len(ACTIONS) > 60
    kinds = {p["type"] for s in specs for p in s["parameters"]["properties"].values()}
    assert kinds == {"string", "integer", "number", "boolean", "array"}


@pytest.mark.parametrize(("a", "b"), [(7, 8), (47, 38), (999, 1), (47, 8), (120, 35), (0, 0)])
def test_the_working_of_a_sum_is_right(a: int, b: int) -> None:
    answer = arithmetic.sum_answer(a, b)
    assert last_number(answer) == str(a + b)
    for step in answer.partition(":")[0].split(", "):
        terms, _, result = step.rstrip(".").partition("=")
        assert sum(map(int, terms.split("+"))) == int(result)


@pytest.mark.parametrize(("a", "b"), [(9, 8), (47, 38), (100, 1), (903, 207), (120, 35), (10, 10)])
def test_the_working_of_a_difference_is_right(a: int, b: int) -> None:
    answer = arithmetic.difference_answer(a, b)
    assert last_number(answer) == str(a - b)
    for step in answer.partition(":")[0].rstrip(".").split(", "):
        terms, _, result = step.partition("=")
        first, *rest = map(int, terms.split("-"))
        assert first - sum(rest) == int(result)


def test_words_of_the_evaluation_are_spelled_in_neither_part_of_the_training() -> None:
    rng = Random(10)
    spelled: set[str] = set()
    for part in (1, 2, 3):
        for _ in range(600):
            conversation = mixture.training_conversation(rng, part)
            text = " ".join(turn.content for turn in conversation.turns if turn.role == "assistant")
            spelled |= {match.replace("-", "") for match in _LETTERS.findall(text)}
    assert len(spelled) > 300
    assert not [word for word in spelled if held_out(f"word {word}")]


def test_the_second_part_spells_what_the_vocabulary_holds_as_one_token() -> None:
    rng = Random(11)
    asked = " ".join(
        turn.content
        for _ in range(800)
        for turn in mixture.training_conversation(rng, part=2).turns
    )
    assert len({piece for piece in letters.PIECES if f"spell {piece}" in asked.lower()}) > 20


def test_marks_between_letters_split_tokens_and_reach_no_reader() -> None:
    class Words:
        def encode(self, text: str) -> list[int]:
            return [len(word) for word in text.split()]

    turns = (Turn("user", "reverse it"), Turn("assistant", LETTER_BREAK.join("olleh")))
    conversation = Conversation("letters", turns, "", "value", "")
    tokens = sample(conversation, Words(), sort_keys=False, limit=99).tokens  # type: ignore[arg-type]
    assert tokens.count(1) >= 4
    assert turns[1].message() == {"role": "assistant", "content": "olleh"}


def test_reversed_words_are_reversed() -> None:
    rng = Random(6)
    for _ in range(50):
        exchange = letters.reversal(rng)
        assert exchange.short[::-1] == exchange.key.removeprefix("word ").lower()


def test_stories_are_short_varied_and_about_what_was_asked() -> None:
    rng = Random(7)
    told = [stories.story(rng) for _ in range(200)]
    lengths = [len(each.answer.split()) for each in told]
    assert min(lengths) >= 50
    assert max(lengths) <= 160
    assert len({each.answer for each in told}) == len(told)
    assert all(each.short.lower() in each.answer.lower() for each in told)


def test_tables_and_facts_hold_single_lines() -> None:
    for table in (tables.CAPITALS, tables.JOBS, tables.OPPOSITES, tables.PLURALS):
        assert not [entry for entry in (*table, *table.values()) if "\n" in entry]
    assert len(tables.CAPITALS) >= 60
    entries = (*facts.COMMANDS, *facts.FLAGS, *facts.CHAT, *facts.INSTRUCTIONS, *facts.PARAMETERS)
    names = [entry.name for entry in (*entries, *facts.VARIABLES)]
    assert names.count("stop") == 2  # the command and the PARAMETER
    assert all(entry.asks for entry in (*entries, *facts.VARIABLES, *facts.ABOUT))


def test_results_are_put_into_words_with_their_values() -> None:
    rng = Random(8)
    for _ in range(200):
        _, answer, value = tool_use.result(rng)
        assert value in answer


def test_neither_the_package_nor_the_evaluation_imports_torch() -> None:
    code = (
        "import sys, registry.builtin.ember, tests.ember.evaluate as e;"
        "sys.exit('torch' in sys.modules or 'llama_cpp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
