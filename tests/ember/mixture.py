"""Mixes the skills into conversations: how often each is drawn, personas, several turns, and the
evaluation set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.ember.exchange import Conversation, Exchange, Split, Turn, draw
from tests.ember.skills import (
    arithmetic,
    calendar,
    follow_ups,
    hearth,
    json_output,
    letters,
    persona,
    stories,
    talk,
    tool_use,
    world,
)

Generator = Callable[[Random], Exchange]

Groups = dict[str, tuple[tuple[Generator, int], ...]]

GROUPS: Groups = {
    "hearth": hearth.GENERATORS,
    "arithmetic": arithmetic.GENERATORS,
    "letters": letters.GENERATORS,
    "calendar": calendar.GENERATORS,
    "world": world.GENERATORS,
    "json": json_output.GENERATORS,
    "talk": talk.CHAT_GENERATORS,
    "unknown": talk.UNKNOWN_GENERATORS,
    "stories": stories.GENERATORS,
}
WEIGHTS = {
    "hearth": 8,
    "arithmetic": 34,
    "letters": 36,
    "calendar": 12,
    "world": 10,
    "json": 10,
    "talk": 3,
    "unknown": 4,
    "stories": 2,
}
LATER_GROUPS: Groups = {**GROUPS, "letters": letters.LATER_GENERATORS}
LATER_WEIGHTS = {**WEIGHTS, "letters": 50}
TOOL_SHARES = {1: 0.22, 2: 0.22, 3: 0.45}
PERSONA_SHARES = {1: 0.12, 2: 0.12, 3: 0.16}
"""By the part of the training: what takes longest to learn is most of the last one."""
FOLLOW_UP_SHARE = 0.3
LONG_SHARE = 0.015
MOST_TURNS = (1, 1, 1, 2, 2, 3, 4)


def exchange(rng: Random, group: str, split: Split, groups: Groups = GROUPS) -> Exchange:
    """One exchange of a group of skills on the side of `split`."""
    generators = groups[group]
    generate = rng.choices([g for g, _ in generators], [w for _, w in generators])[0]
    return draw(rng, split, generate)


def _any_exchange(
    rng: Random, split: Split, weights: dict[str, int] = WEIGHTS, groups: Groups = GROUPS
) -> tuple[str, Exchange]:
    group = rng.choices(list(weights), list(weights.values()))[0]
    return group, exchange(rng, group, split, groups)


def _rounds(rng: Random, item: Exchange, split: Split) -> list[tuple[str, str]]:
    """The exchange and perhaps its follow-up."""
    rounds = [(tool_use.polish(rng, item.question), item.answer)]
    after = follow_ups.follow_up(rng, item, split) if rng.random() < FOLLOW_UP_SHARE else None
    if after is not None:
        rounds.append(after[:2])
    return rounds


def plain_conversation(rng: Random, split: Split, turns: int, later: bool = False) -> Conversation:
    """Unrelated exchanges one after another, now and then under a neutral system message."""
    messages: list[Turn] = []
    if rng.random() < 0.12:
        messages.append(
            Turn(
                "system",
                rng.choice(
                    (
                        "You are a helpful assistant.",
                        "You are ember.",
                        "Be helpful.",
                        "Answer the user's questions.",
                        "You are a helpful AI assistant.",
                    )
                ),
            )
        )
    for _ in range(turns):
        if later:
            _, item = _any_exchange(rng, split, LATER_WEIGHTS, LATER_GROUPS)
        else:
            _, item = _any_exchange(rng, split)
        for question, answer in _rounds(rng, item, split):
            messages += [Turn("user", question), Turn("assistant", answer)]
    return Conversation("plain", tuple(messages), "", "value", "")


def persona_exchange(
    rng: Random, split: Split, name: str | None, kind: str, tone: persona.Tone
) -> tuple[Exchange, str]:
    """An exchange and its answer as the persona gives it."""
    if rng.random() < 0.4:
        item = draw(rng, split, lambda r: persona.who(r, name, kind))
    else:
        _, item = _any_exchange(
            rng,
            split,
            {
                "hearth": 2,
                "arithmetic": 6,
                "letters": 2,
                "calendar": 4,
                "world": 6,
                "talk": 2,
                "unknown": 2,
                "json": 1,
            },
        )
        if item.question and item.answer.startswith("I am ember"):
            item = draw(rng, split, lambda r: persona.who(r, name, kind))
    return item, item.answer if item.fixed else tone.speak(item)


def persona_conversation(rng: Random, split: Split, turns: int) -> Conversation:
    """Exchanges under a system message that gives a name and a tone."""
    name, kind, tone = persona.random_persona(rng)
    messages = [Turn("system", persona.system_message(rng, name, kind, tone))]
    item, answer = persona_exchange(rng, split, name, kind, tone)
    for left in range(turns, 0, -1):
        messages += [Turn("user", tool_use.polish(rng, item.question)), Turn("assistant", answer)]
        if left > 1:
            item, answer = persona_exchange(rng, split, name, kind, tone)
    return Conversation("persona", tuple(messages), "", "value", answer)


def training_conversation(rng: Random, part: int = 1) -> Conversation:
    """One training sample of the first, second or third part of the training."""
    later = part > 1
    tool_share, persona_share = TOOL_SHARES[part], PERSONA_SHARES[part]
    kind = rng.random()
    if kind < tool_share:
        return tool_use.long_conversation(rng, "train", rng.choice((2, 3, 4, 5, 6)))
    if kind < tool_share + persona_share:
        return persona_conversation(rng, "train", rng.choice((1, 1, 2, 3)))
    if rng.random() < LONG_SHARE:
        return plain_conversation(rng, "train", rng.randint(20, 45), later)
    return plain_conversation(rng, "train", rng.choice(MOST_TURNS), later)


def stream(seed: int) -> Iterator[Conversation]:
    """The endless training stream of a seed."""
    rng = Random(seed)
    while True:
        yield training_conversation(rng)
