"""Writes training conversations as text, from which `hearth distill` makes a student of ember.

`python -m tests.ember.conversations --count 6000 FILE`; documents end with <|endoftext|>.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random

from tests.ember.chat import render
from tests.ember.mixture import TOOL_SHARES, training_conversation

SEPARATOR = "<|endoftext|>"


def documents(seed: int) -> Iterator[str]:
    """Endless conversations, those of each part of ember's training in turn."""
    rng = Random(f"conversations {seed}")
    for part in cycle(TOOL_SHARES):
        conversation = training_conversation(rng, part)
        messages = [turn.message() for turn in conversation.turns]
        yield render(messages, list(conversation.tools))


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    text = SEPARATOR.join(islice(documents(chosen.seed), chosen.count))
    chosen.file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
