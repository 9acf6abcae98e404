"""System messages: a name and a tone, and how they change every answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.ember.exchange import Exchange, phrase
from tests.ember.skills.talk import NAME_QUESTION
from tests.ember.words import ADJECTIVES, FIRST_NAMES, OBJECTS, made_up_word

KINDS = (
    "robot",
    "assistant",
    "helper",
    "parrot",
    "dragon",
    "owl",
    "cat",
    "wizard",
    "teacher",
    "guide",
    "librarian",
    "pilot",
    "gardener",
    "chef",
    "fox",
    "knight",
    "butler",
    "ghost",
    "tutor",
    "bear",
    "elf",
    "sailor",
    "bot",
    "clerk",
    "coach",
    "detective",
    "fairy",
    "turtle",
    "chatbot",
)

KINDER_ADJECTIVES = ("friendly", "helpful", "wise", "funny", "kind", "clever", "little")


@dataclass(frozen=True, slots=True)
class Tone:
    """A way to speak: how system messages ask for it and what it does to an answer."""

    name: str
    asks: tuple[str, ...]
    adjective: str | None
    speak: Callable[[Exchange], str]


def _plain(exchange: Exchange) -> str:
    return exchange.answer


def _brief(exchange: Exchange) -> str:
    if exchange.worked:
        return exchange.answer
    return exchange.short.strip('`"') if exchange.check != "unknown" else "I don't know."


TONES = (
    Tone("plain", ("", "", "You answer questions.", "Be helpful.", "Help the user."), None, _plain),
    Tone(
        "pirate",
        (
            "Talk like a pirate.",
            "You speak like a pirate.",
            "Answer like a pirate.",
            "Always sound like a pirate.",
            "Use pirate talk.",
        ),
        "pirate",
        lambda e: f"Arr! {e.answer} Ahoy, matey!",
    ),
    Tone(
        "formal",
        (
            "Be formal.",
            "Use formal language.",
            "Answer formally.",
            "Speak in a formal tone.",
            "Always be formal and polite.",
        ),
        "formal",
        lambda e: f"Certainly. {e.answer} I remain at your service.",
    ),
    Tone(
        "cheerful",
        (
            "Be cheerful.",
            "Answer cheerfully.",
            "Be very happy.",
            "You are always in a good mood.",
            "Speak in a cheerful tone.",
        ),
        "cheerful",
        lambda e: f"Yay! {e.answer} Have a great day!",
    ),
    Tone(
        "brief",
        (
            "Be brief.",
            "Answer briefly.",
            "Keep answers short.",
            "Answer in as few words as possible.",
            "Be concise.",
            "Give only the answer.",
        ),
        "brief",
        _brief,
    ),
    Tone(
        "capitals",
        (
            "Write in ALL CAPS.",
            "Answer in capital letters.",
            "Use only capital letters.",
            "Always answer in ALL CAPS.",
            "SHOUT.",
        ),
        None,
        lambda e: e.answer.upper(),
    ),
    Tone(
        "grumpy",
        ("Be grumpy.", "You are in a bad mood.", "Answer in a grumpy tone.", "Sound grumpy."),
        "grumpy",
        lambda e: f"Hmpf. {e.answer} Now leave me alone.",
    ),
    Tone(
        "sleepy",
        ("You are very sleepy.", "Sound sleepy.", "Be tired and sleepy."),
        "sleepy",
        lambda e: f"Yawn. {e.answer} Can I sleep now?",
    ),
)


def _a(text: str) -> str:
    return ("an " if text[0].lower() in "aeiou" else "a ") + text


def system_message(rng: Random, name: str | None, kind: str, tone: Tone) -> str:
    """A system message that gives the name, the kind of being and the tone."""
    described = kind
    if tone.adjective is not None and rng.random() < 0.5:
        described = f"{tone.adjective} {kind}"
        ask = ""
    else:
        ask = rng.choice(tone.asks)
    if name is None:
        lead = rng.choice(("", f"You are {_a(described)}.")) if ask else f"You are {_a(described)}."
    else:
        lead = phrase(
            rng,
            rng.choice(
                (
                    "You are {n}, {k}.",
                    "You are {n}, {k}.",
                    "Your name is {n}. You are {k}.",
                    "You are {k} (named|called) {n}.",
                    "Act as {n}, {k}.",
                    "You are {n}.",
                )
            ),
            n=name,
            k=_a(described),
        )
        if tone.adjective is not None and not ask and described not in lead:
            ask = rng.choice(tone.asks)
    parts = [lead, ask] if rng.random() < 0.8 else [ask, lead]
    return " ".join(part for part in parts if part) or "You are a helpful assistant."


def random_name(rng: Random) -> str:
    """A name for a persona."""
    draw = rng.random()
    if draw < 0.4:
        return rng.choice(FIRST_NAMES)
    return (
        made_up_word(rng, rng.choice((1, 2))).capitalize()
        if draw < 0.85
        else rng.choice(OBJECTS).capitalize()
    )


def random_persona(rng: Random) -> tuple[str | None, str, Tone]:
    """A name or none, a kind of being and a tone."""
    chosen = random_name(rng) if rng.random() < 0.8 else None
    kind = rng.choice(KINDS)
    if rng.random() < 0.3:
        kind = f"{rng.choice((*ADJECTIVES, *KINDER_ADJECTIVES))} {kind}"
    return chosen, kind, rng.choice(TONES)


def who(rng: Random, name: str | None, kind: str) -> Exchange:
    """The name or the kind, under a system message."""
    question = phrase(rng, NAME_QUESTION)
    if name is None:
        return Exchange(question, f"I am {_a(kind)}.", f"I am {_a(kind)}", question)
    return Exchange(question, f"I am {name}.", name, f"{question} {name}")
