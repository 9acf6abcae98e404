"""Measures ember on questions that its training never saw, and prints the accuracy per skill.

`python -m tests.ember.evaluate --gguf FILE` asks the file in this process,
`--url http://127.0.0.1:4327` asks a running hearth. Greedy decoding. Needs no torch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from tests.ember.drivers import Driver, GgufDriver, HttpDriver, Question, Reply
from tests.ember.exchange import Check, Conversation, Exchange, Turn, draw
from tests.ember.grading import Grade, grade
from tests.ember.mixture import GROUPS, persona_exchange
from tests.ember.skills import (
    arithmetic,
    calendar,
    follow_ups,
    hearth,
    letters,
    persona,
    tool_use,
    world,
)

CLOSED = (
    "hearth",
    "arithmetic",
    "letters",
    "calendar",
    "world",
    "json",
    "talk",
    "persona",
    "follow-ups",
    "long conversations",
    "tool calls",
    "tools not needed",
    "tool results",
)
OPEN = ("unknown", "stories")
ANSWER_TOKENS = 220
LATE_CHARACTERS = 3200
"""About 1,800 tokens with the marks of the turns."""
LATE_GENERATORS = (
    hearth.command,
    world.capital,
    calendar.unit,
    arithmetic.addition,
    letters.spelling,
)
TARGETS = {"closed skills": 0.9, "well-formed tool calls": 0.95, "right tool and arguments": 0.95}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    skill: str
    questions: int
    right: int
    well_formed: int

    @property
    def accuracy(self) -> float:
        return self.right / self.questions


def _single(skill: str, item: Exchange, before: tuple[Turn, ...] = ()) -> Conversation:
    turns = (*before, Turn("user", item.question), Turn("assistant", item.answer))
    return Conversation(skill, turns, item.key, item.check, item.short)


def _persona(rng: Random) -> Conversation:
    name, kind, tone = persona.random_persona(rng)
    item, answer = persona_exchange(rng, "eval", name, kind, tone)
    turns = (
        Turn("system", persona.system_message(rng, name, kind, tone)),
        Turn("user", item.question),
        Turn("assistant", answer),
    )
    if item.fixed:
        return Conversation("persona", turns, item.key, item.check, item.short)
    return Conversation("persona", turns, item.key, "exact", answer)


def _follow_up(rng: Random) -> Conversation:
    while True:
        item = draw(rng, "eval", rng.choice(follow_ups.STARTERS))
        after = follow_ups.follow_up(rng, item, "eval")
        if after is not None:
            break
    turns = (
        Turn("user", item.question),
        Turn("assistant", item.answer),
        Turn("user", after[0]),
        Turn("assistant", after[1]),
    )
    check: Check = "number" if after[2].isdigit() else "value"
    return Conversation("follow-ups", turns, item.key, check, after[2])


def _late_question(rng: Random) -> Conversation:
    """A question at the end of a conversation that nearly fills the context."""
    turns: list[Turn] = []
    while sum(len(turn.content) for turn in turns) < LATE_CHARACTERS:
        item = draw(rng, "eval", rng.choice(LATE_GENERATORS))
        turns += [Turn("user", item.question), Turn("assistant", item.answer)]
    return Conversation("long conversations", tuple(turns), item.key, item.check, item.short)


def questions(seed: int, per_generator: int, tool_calls: int) -> list[Conversation]:
    """The evaluation set: the same seed gives the same questions."""
    rng = Random(f"evaluation {seed}")
    chosen: list[Conversation] = []
    for group, generators in GROUPS.items():
        for generate, _ in generators:
            label = group if len(generators) == 1 else f"{group}/{generate.__name__}"
            count = per_generator * 3 if len(generators) == 1 else per_generator
            chosen += [_single(label, draw(rng, "eval", generate)) for _ in range(count)]
    chosen += [_persona(rng) for _ in range(per_generator * 4)]
    chosen += [_follow_up(rng) for _ in range(per_generator * 2)]
    chosen += [_late_question(rng) for _ in range(per_generator)]
    chosen += [tool_use.call_conversation(rng, "eval") for _ in range(tool_calls)]
    chosen += [tool_use.no_call_conversation(rng, "eval") for _ in range(tool_calls // 2)]
    chosen += [tool_use.result_conversation(rng, "eval") for _ in range(tool_calls // 2)]
    return chosen


def ask(driver: Driver, conversations: list[Conversation]) -> list[Reply]:
    """Let the model give the last answer of every conversation."""
    asked = [
        Question([turn.message() for turn in c.turns[:-1]], list(c.tools), ANSWER_TOKENS)
        for c in conversations
    ]
    return driver.complete(asked)


def rows(conversations: list[Conversation], grades: list[Grade]) -> list[Row]:
    """One row per part of a skill and one per skill."""
    gathered: dict[str, list[Grade]] = defaultdict(list)
    for conversation, each in zip(conversations, grades, strict=True):
        gathered[conversation.skill].append(each)
        if "/" in conversation.skill:
            gathered[conversation.skill.split("/")[0]].append(each)
    return [
        Row(skill, len(found), sum(g.right for g in found), sum(g.well_formed for g in found))
        for skill, found in gathered.items()
    ]


def summary(table: list[Row]) -> dict[str, float]:
    """The figures with a target, as far as their skills were asked."""
    figures: dict[str, float] = {}
    closed = [row for row in table if row.skill in CLOSED]
    if closed:
        right, asked = (sum(row.right for row in closed), sum(row.questions for row in closed))
        figures["closed skills"] = right / asked
    for row in table:
        if row.skill == "tool calls":
            figures["well-formed tool calls"] = row.well_formed / row.questions
            figures["right tool and arguments"] = row.accuracy
    return figures


def printed(table: list[Row], details: bool) -> str:
    """The table as Markdown."""
    lines = ["| skill | questions | right | accuracy |", "|---|---:|---:|---:|"]
    order = {skill: index for index, skill in enumerate((*CLOSED, *OPEN))}
    for row in sorted(table, key=lambda row: (order.get(row.skill.split("/")[0], 99), row.skill)):
        if "/" in row.skill and not details:
            continue
        name = f"&nbsp;&nbsp;{row.skill}" if "/" in row.skill else f"**{row.skill}**"
        lines.append(f"| {name} | {row.questions} | {row.right} | {row.accuracy:.1%} |")
    lines.append("")
    for name, figure in summary(table).items():
        lines.append(f"{name}: {figure:.1%} (target {TARGETS[name]:.0%})")
    return "\n".join(lines)


def show_failures(
    conversations: list[Conversation], replies: list[Reply], grades: list[Grade], most: int
) -> None:
    """Print up to `most` wrong answers per skill."""
    shown: dict[str, int] = defaultdict(int)
    for conversation, reply, each in zip(conversations, replies, grades, strict=True):
        if each.right or shown[conversation.skill] >= most:
            continue
        shown[conversation.skill] += 1
        wanted = [(call.name, call.arguments) for call in conversation.calls] or conversation.turns[
            -1
        ].content
        got = [(call.name, call.arguments) for call in reply.calls] or reply.content
        print(
            f"[{conversation.skill}] {conversation.turns[-2].content!r}\n   wanted {wanted}\n   got"
            f"    {got} {'MALFORMED' if reply.malformed else ''}"
        )


def main(arguments: list[str] | None = None) -> None:
    """Command line of the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="a running hearth, e.g. http://127.0.0.1:4327")
    where.add_argument("--gguf", type=Path, help="a GGUF file, run in this process")
    parser.add_argument("--model", default="ember", help="model name for --url")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-generator", type=int, default=25)
    parser.add_argument("--tool-calls", type=int, default=200)
    parser.add_argument("--skills", nargs="*", default=[], help="only skills that start so")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--summary-only", action="store_true", help="leave the parts of skills out of the table"
    )
    parser.add_argument(
        "--failures", type=int, default=0, help="print up to this many wrong answers per skill"
    )
    chosen = parser.parse_args(arguments)
    driver: Driver = (
        HttpDriver(chosen.url, chosen.model, chosen.concurrency)
        if chosen.url
        else GgufDriver(chosen.gguf, threads=chosen.threads)
    )
    started = time.monotonic()
    asked = questions(chosen.seed, chosen.per_generator, chosen.tool_calls)
    if chosen.skills:
        asked = [each for each in asked if each.skill.startswith(tuple(chosen.skills))]
    replies = ask(driver, asked)
    grades = [
        grade(conversation, reply) for conversation, reply in zip(asked, replies, strict=True)
    ]
    table = rows(asked, grades)
    if chosen.json:
        print(
            json.dumps(
                {
                    "summary": summary(table),
                    "rows": [asdict(row) for row in table],
                    "seconds": time.monotonic() - started,
                }
            )
        )
        return
    show_failures(asked, replies, grades, chosen.failures)
    print(printed(table, not chosen.summary_only))
    print(f"{len(asked)} questions in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
