"""Sentences for models of embeddings: pairs graded by meaning, and many of every kind."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Final

COUNT: Final = 1000

# Written in the manner of the STS benchmark: from pairs that say the same down to unrelated ones.
PAIRS: Final = (
    ("A man is playing a guitar.", "Someone plays the guitar."),
    ("The cat sits on the mat.", "A cat is sitting on a rug."),
    ("Two children are running through the park.", "Two kids run in a park."),
    ("The train was late because of snow.", "Snow delayed the train."),
    ("She bought a new car last week.", "Last week she purchased a new automobile."),
    ("The company reported higher profits.", "Profits of the firm went up."),
    ("A woman is slicing an onion.", "A woman cuts vegetables."),
    ("He opened the window to let fresh air in.", "He opened the door of the house."),
    ("The dog chases a ball in the garden.", "A dog is sleeping in the garden."),
    ("A plane is taking off.", "An aircraft lands at the airport."),
    ("The bread is baking in the oven.", "The cake is cooling on the table."),
    ("Rain is expected in the north tomorrow.", "It will be sunny in the south tomorrow."),
    ("The teacher explains a theorem.", "A student reads a book about history."),
    ("A boy throws stones into the lake.", "People swim in the sea."),
    ("The court rejected the appeal.", "The judge ate lunch at noon."),
    ("My phone has no battery left.", "The recipe needs three eggs."),
    ("Birds fly south in winter.", "The stock market fell sharply."),
    ("The hearth keeps the house warm.", "Quantum computers factor integers."),
    ("Il fait très beau aujourd'hui.", "The weather is very nice today."),
    ("He never eats meat.", "He eats meat every day."),
)

_HARD: Final = (
    "",
    " ",
    "a",
    ".",
    "é",
    "E\u0301TÉ ÉTÉ été",
    "Straße STRASSE ﬁnance Ⅷ ½ ①",
    "火の用心。東京は日本の首都です。",
    "한국어 문장입니다.",
    "Съешь же ещё этих мягких французских булок",
    "مرحبا بالعالم",
    "Το γρήγορο καφέ αλεπού, tiếng Việt, สวัสดี",
    "👩‍👩‍👧 🎉 🏳️‍🌈 no words",
    "tabs\tand\nlines\r\nand\u00a0spaces\u2003wide",
    "zero\u200bwidth\u00adhyphen\ufeff",
    "##ing ## #hashtag",
    "don't can't it's 3.14 -7 1,000,000 user@example.com",
    "x = {'a': [1, 2, 3], \"b\": None}  # comment",
    "supercalifragilisticexpialidocious" * 4,
    "\u0000\u0001 control \u007f characters",
)
_WHO: Final = ("The old sailor", "A young nurse", "My neighbour", "The committee", "Nobody")
_DOES: Final = ("repairs", "describes", "has never seen", "sold", "is afraid of", "paints")
_WHAT: Final = ("a wooden boat", "the northern lights", "three letters", "an empty house")
_WHEN: Final = ("in spring", "before the meeting", "every Tuesday", "without a word", "again")


def sentences(count: int = COUNT) -> list[str]:
    """As many different ones, the same on every machine: those of the pairs, hard ones, those of
    text.txt, and made ones of up to 120 words."""
    rng = Random("sentences 1")
    text = Path(__file__).with_name("text.txt").read_text("ascii")
    written = [part.strip() for part in re.split(r"(?<=[.:!?])\s+", text)]
    short = [part for part in written if 0 < len(part) <= 500]
    found = dict.fromkeys([*(each for pair in PAIRS for each in pair), *_HARD, *short[:400]])
    while len(found) < count:
        parts = [
            " ".join(rng.choice(words) for words in (_WHO, _DOES, _WHAT, _WHEN))
            for _ in range(rng.choice((1, 1, 1, 2, 3, 10)))
        ]
        found[". ".join(parts) + "."] = None
    return list(found)[:count]
