"""Questions that lean on the answer before them: "and plus 3?", "spell that", "and Italy?"."""

from __future__ import annotations

from random import Random

from tests.ember.exchange import Exchange, Split, held_out
from tests.ember.skills import arithmetic, calendar, letters, world

STARTERS = (
    arithmetic.addition,
    arithmetic.subtraction,
    world.capital,
    world.opposite,
    world.animal,
    world.grammar,
    calendar.day_step,
    calendar.month_step,
)
"""Exchanges that people like to follow up."""
SPELL = ("spell that", "spell it", "can you spell that?", "how is that spelled?", "and spell it")
REVERSE = ("and backwards?", "reverse it", "reverse that", "say it backwards")
COUNT = ("how many letters is that?", "how many letters does it have?", "count its letters")


def _about_word(rng: Random, word: str) -> tuple[str, str, str]:
    kind = rng.random()
    if kind < 0.5 or len(word) > letters.LONGEST_REVERSED:
        answer, short = letters.spelled_answer(word)
        return rng.choice(SPELL), answer, short
    if kind < 0.75:
        answer, short = letters.reversed_answer(word)
        return rng.choice(REVERSE), answer, short
    answer, short = letters.length_answer(word)
    return rng.choice(COUNT), answer, short


def follow_up(rng: Random, item: Exchange, split: Split) -> tuple[str, str, str] | None:
    """A question, its answer and what the answer must hold; None when nothing follows well.

    Words that the evaluation spells are never spelled for the training.
    """
    word = item.short
    spellable = word.isascii() and word.isalpha() and len(word) > 2
    if spellable and held_out(f"word {word}") == (split == "eval") and rng.random() < 0.6:
        return _about_word(rng, word)
    return rng.choice(item.follow_ups) if item.follow_ups else None
