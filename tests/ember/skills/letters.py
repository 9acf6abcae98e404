"""Words as letters, and short lists: spelling, reversing, counting, sorting. Held out by word or
list.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.ember.exchange import LETTER_BREAK, Exchange, held_out, phrase
from tests.ember.words import (
    CITIES,
    COMMON_WORDS,
    FIRST_NAMES,
    FRUITS,
    OBJECTS,
    made_up_word,
)

LONGEST_REVERSED = 8
PIECES = tuple(Path(__file__).with_name("pieces.txt").read_text().split())
"""What the vocabulary holds as one token: a model that has spelled nine in ten of them reads the
letters of the rest."""
WordSource = Callable[[Random, int], str]
LONGEST = 12
QUOTES = ("{}", "{}", '"{}"', "'{}'")


def _word(rng: Random, longest: int) -> str:
    draw = rng.random()
    while True:
        if draw < 0.5:
            word = rng.choice(COMMON_WORDS)
        elif draw < 0.65:
            word = rng.choice(FIRST_NAMES + CITIES)
        elif draw < 0.95:
            word = made_up_word(rng)
        else:
            word = "".join(
                rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 6))
            )
        if 2 < len(word) <= longest:
            return word


def _piece(rng: Random, longest: int) -> str:
    if rng.random() < 0.4:
        return _word(rng, longest)
    while True:
        piece = rng.choice(PIECES)
        if len(piece) <= longest:
            return piece.capitalize() if rng.random() < 0.2 else piece


def _shown(rng: Random, word: str) -> str:
    return rng.choice(QUOTES).format(word)


def _spelled(word: str) -> str:
    return "-".join(word.lower())


def _numbered(word: str) -> list[str]:
    """The letters with their places: 1h 2i. A small model finds a letter by its number."""
    return [f"{place}{letter}" for place, letter in enumerate(word.lower(), 1)]


def spelled_answer(word: str) -> tuple[str, str]:
    """The sentence that spells `word`, and its letters."""
    return f"{word} is spelled {_spelled(word)}.", _spelled(word)


def reversed_answer(word: str) -> tuple[str, str]:
    """The sentence that reverses `word` by way of its letters, and the result."""
    backwards = word.lower()[::-1]
    places = _numbered(word)
    written = LETTER_BREAK.join(backwards)
    answer = f'{" ".join(places)} backwards is {" ".join(reversed(places))}: "{written}".'
    return answer, backwards


def length_answer(word: str) -> tuple[str, str]:
    """The sentence that counts the letters of `word`, and their number."""
    return f"{' '.join(_numbered(word))}: {word} has {len(word)} letters.", f"{len(word)} letters"


def spelling(rng: Random, source: WordSource = _word) -> Exchange:
    """Letter by letter."""
    word = source(rng, LONGEST)
    question = phrase(
        rng,
        "(spell|spell|please spell|can you spell|spell out|how do you spell|how is|spell the"
        " word|letter by letter, spell) {w}",
        w=_shown(rng, word),
    )
    if question.startswith("how is"):
        question += " spelled?"
    answer, short = spelled_answer(word)
    return Exchange(question, answer, short, f"word {word}")


def spelling_several(rng: Random, source: WordSource = _word) -> Exchange:
    """A few words, letter by letter."""
    chosen = [source(rng, 9)]
    side = held_out(f"word {chosen[0]}")
    for _ in range(rng.randint(1, 4)):
        word = source(rng, 9)
        while held_out(f"word {word}") != side:
            word = source(rng, 9)
        chosen.append(word)
    listed = ", ".join(chosen[:-1]) + " and " + chosen[-1]
    question = phrase(
        rng, "(spell|please spell|can you spell|spell these words:|spell out) {w}", w=listed
    )
    short = ", ".join(f"{word} {_spelled(word)}" for word in chosen)
    return Exchange(question, f"{short}.", short, f"word {chosen[0]}")


def reversal(rng: Random, source: WordSource = _word) -> Exchange:
    """The word backwards, by way of its letters."""
    word = source(rng, LONGEST_REVERSED)
    question = phrase(
        rng,
        "(reverse|reverse the word|write|say|spell|turn around|what is) {w}",
        w=_shown(rng, word),
    )
    if question.startswith(("write", "say", "spell", "what is")):
        question += rng.choice((" backwards", " in reverse"))
    answer, short = reversed_answer(word)
    return Exchange(question, answer, short, f"word {word}")


def length(rng: Random, source: WordSource = _word) -> Exchange:
    """How many letters a word has."""
    word = source(rng, LONGEST)
    question = phrase(
        rng,
        "(how many letters (are in|does) {w}|count the letters (in|of) {w}|how long is the word"
        " {w})",
        w=_shown(rng, word),
    )
    if " does " in question:
        question += " have?"
    answer, short = length_answer(word)
    return Exchange(question, answer, short, f"word {word}")


def occurrences(rng: Random, source: WordSource = _word) -> Exchange:
    """How often a letter occurs in a word."""
    word = source(rng, 10)
    letter = (
        rng.choice(word.lower())
        if rng.random() < 0.85
        else rng.choice("abcdefghijklmnopqrstuvwxyz")
    )
    shown = rng.choice((letter, letter, f'"{letter}"', f"'{letter}'"))
    question = phrase(
        rng,
        "(how many times does {l} (appear|occur) in {w}?|how many {l} are (there|) in {w}?|count"
        " the letter {l} in {w}|how often is the letter {l} in {w}?|how many letters {l} does {w}"
        " have?)",
        l=shown,
        w=_shown(rng, word),
    )
    count, marked = 0, []
    for each in word.lower():
        count += each == letter
        marked.append(f"{each}{count}" if each == letter else each)
    times = "time" if count == 1 else "times"
    return Exchange(
        question,
        f"{'-'.join(marked)}: {letter} appears {count} {times}.",
        f"{count} {times}",
        f"word {word}",
    )


def edge_letter(rng: Random) -> Exchange:
    """The first or the last letter."""
    word = _word(rng, LONGEST)
    end = rng.choice(("first", "last"))
    letter = word.lower()[0 if end == "first" else -1]
    verb = "start" if end == "first" else "end"
    question = phrase(
        rng,
        "(what is|which is|what's|tell me|) the {e} letter (of|in) {w}?",
        e=end,
        w=_shown(rng, word),
    )
    if rng.random() < 0.3:
        question = phrase(
            rng, "(which|what) letter does {w} {v} with?", v=verb, w=_shown(rng, word)
        )
    return Exchange(
        question, f'The {end} letter of {word} is "{letter}".', f'"{letter}"', f"word {word}"
    )


def counting(rng: Random) -> Exchange:
    """Count from a to b, up or down."""
    start = rng.randint(0, 20) if rng.random() < 0.6 else rng.randint(20, 110)
    step = rng.choice((1, 1, 1, -1, -1, 2, 5, 10))
    numbers = [start + step * i for i in range(rng.randint(3, 12))]
    if numbers[-1] < 0:
        return counting(rng)
    question = phrase(
        rng,
        "(count|please count|can you count|count for me|)(|| up| ) from {a} to {b}",
        a=numbers[0],
        b=numbers[-1],
    )
    if step == -1:
        question = phrase(
            rng,
            "(count|please count|can you count) (down|backwards|) from {a} to {b}",
            a=numbers[0],
            b=numbers[-1],
        )
    elif step > 1:
        question = phrase(
            rng,
            "count (|up )from {a} to {b} (by {s}s|in steps of {s})",
            a=numbers[0],
            b=numbers[-1],
            s=step,
        )
    elif not question.lower().startswith(("count", "please", "can")):
        question = "count " + question
    answer = ", ".join(map(str, numbers))
    return Exchange(question, answer + ".", answer, f"count {numbers[0]} {numbers[-1]} {step}")


def sorting(rng: Random) -> Exchange:
    """Sort up to five numbers."""
    numbers = rng.sample(range(100), rng.randint(3, 5))
    down = rng.random() < 0.3
    question = phrase(
        rng,
        "(sort|order|put in order|arrange|please sort)(| these numbers| the numbers)(:| ) {n} "
        + (
            "(from largest to smallest|descending|from big to small|in descending order)"
            if down
            else "(|||from smallest to largest|ascending|in ascending order)"
        ),
        n=", ".join(map(str, numbers)),
    )
    answer = ", ".join(map(str, sorted(numbers, reverse=down)))
    return Exchange(question, answer + ".", answer, f"sort {sorted(numbers)}")


def extreme(rng: Random) -> Exchange:
    """The largest or smallest of a few numbers."""
    numbers = rng.sample(range(100), rng.randint(3, 5))
    word, value = rng.choice((("largest", max(numbers)), ("smallest", min(numbers))))
    synonym = {"largest": "(largest|biggest|highest)", "smallest": "(smallest|lowest)"}[word]
    question = phrase(
        rng,
        f"(which|what) is the {synonym} (number of|of|number in) {{n}}?",
        n=", ".join(map(str, numbers)),
    )
    return Exchange(
        question, f"The {word} is {value}.", str(value), f"extreme {sorted(numbers)}", "number"
    )


def items(rng: Random) -> Exchange:
    """How many things a list names."""
    things = rng.sample(FRUITS + OBJECTS, rng.randint(2, 8))
    question = phrase(
        rng,
        "(how many (items|things|words) are in (this|the) list: {t}?|count (the items|the"
        " things|these): {t}|how many are these: {t}?)",
        t=", ".join(things),
    )
    numbered = ", ".join(f"{i} {thing}" for i, thing in enumerate(things, 1))
    return Exchange(
        question, f"{numbered}: {len(things)} items.", f"{len(things)} items", f"items {things}"
    )


GENERATORS = (
    (spelling, 3),
    (spelling_several, 3),
    (reversal, 5),
    (length, 4),
    (occurrences, 3),
    (edge_letter, 2),
    (counting, 4),
    (sorting, 4),
    (extreme, 2),
    (items, 2),
)


def _of_pieces(
    generate: Callable[[Random, WordSource], Exchange],
) -> Callable[[Random], Exchange]:
    return lambda rng: generate(rng, _piece)


LATER_GENERATORS = (
    (_of_pieces(spelling), 5),
    (_of_pieces(spelling_several), 5),
    (_of_pieces(reversal), 5),
    (_of_pieces(length), 4),
    (_of_pieces(occurrences), 3),
    (edge_letter, 2),
    (counting, 6),
    (sorting, 4),
    (extreme, 2),
    (items, 1),
)
"""For the second part of the training: words beyond those of the evaluation's kinds, and more of
what is hard."""
