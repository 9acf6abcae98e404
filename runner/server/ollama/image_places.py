"""Where the images of a message stand in its text. Ollama's clients write [img] for the next image
and [img-N] for the one of that number in the conversation; other images come first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.types import Image

_PLACE = re.compile(r"\[img(?:-([0-9]{1,3}))?\]", re.ASCII)


def placed(images: Sequence[Image], text: str, first: int = 0) -> list[str | Image]:
    """The images of a message and its text, in parts; first: the number of the first image."""
    if not images:
        return [text]
    named = {int(found) - first for found in _PLACE.findall(text) if found} & {*range(len(images))}
    unnamed = [number for number in range(len(images)) if number not in named]
    parts: list[str | Image] = []
    end = 0
    for match in _PLACE.finditer(text):
        number = None if match[1] is None else int(match[1]) - first
        if number is None and unnamed:
            number = unnamed.pop(0)
        elif number in named:
            named.discard(number)
        else:
            continue  # no image, or one that has its place
        assert number is not None
        parts += [text[end : match.start()], images[number]]
        end = match.end()
    return [*(images[number] for number in unnamed), *parts, text[end:]]
