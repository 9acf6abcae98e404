"""Images named in a prompt: paths of image files in what the user typed.

Owns which words are paths of pictures. What the files hold is the daemon's business.
"""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.errors import CliError
from cli.terminal import status

if TYPE_CHECKING:
    from cli.session import Session

MAX_IMAGE_BYTES: Final = 20 << 20  # what the daemon takes
IMAGE_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
_MAX_IMAGES: Final = 64
_END: Final = r"\.(?:png|jpe?g|webp|gif|bmp)"
# A path has a slash. Unquoted, a backslash stands before what would end it.
_WORD: Final = re.compile(
    rf"""(?P<quote>['"])(?P<quoted>[^'"\n]{{1,4096}}?{_END})(?P=quote)"""
    r"""|(?P<bare>(?:\\.|[^\s\\'"])++)""",
    re.IGNORECASE,
)
_ENDED: Final = re.compile(rf"{_END}(?![\w-]|\.\w)", re.IGNORECASE)
_OPENING: Final = "([{<,;="
_MAX_PATH_CHARS: Final = 4096
_ESCAPED: Final = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class PromptImages:
    """A prompt without the paths in it, and these: as they were written, and where they lead."""

    text: str
    paths: tuple[tuple[str, Path], ...] = ()


def find_images(text: str) -> PromptImages:
    """The paths in text that lead to picture files; what leads nowhere stays text."""
    found: list[tuple[str, Path]] = []

    def take(match: re.Match[str]) -> str:
        if len(found) == _MAX_IMAGES:
            return match[0]
        if match["quote"]:
            path = _file(match["quoted"])
            if path is None:
                return match[0]
            found.append((match["quoted"], path))
            return ""
        return _without_path(match["bare"], found)

    left = _WORD.sub(take, text)
    return PromptImages(left.strip(), tuple(found)) if found else PromptImages(text)


def _without_path(word: str, found: list[tuple[str, Path]]) -> str:
    """word without the path in it, which is added to found; brackets and commas may be around."""
    start = len(word) - len(word.lstrip(_OPENING))
    if "/" not in word or len(word) > _MAX_PATH_CHARS:
        return word
    for end in [match.end() for match in _ENDED.finditer(word)][:-4:-1]:
        plain = _ESCAPED.sub(r"\1", word[start:end])
        if (path := _file(plain)) is not None:
            found.append((plain, path))
            return word[:start] + word[end:]
    return word


def read_images(paths: tuple[tuple[str, Path], ...]) -> list[str]:
    """The files in base64, as /api/chat takes them, each named on stderr. Raises CliError."""
    images = []
    for written, path in paths:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_IMAGE_BYTES + 1)
        except OSError as error:
            raise CliError(f"{written} cannot be read: {error.strerror}") from None
        if len(data) > MAX_IMAGE_BYTES:
            raise CliError(
                f"{written} is larger than {MAX_IMAGE_BYTES >> 20} MiB; use a smaller image"
            )
        print(f"Added image '{written}'", file=sys.stderr)
        images.append(base64.b64encode(data).decode())
    return images


def extract_images(session: Session, text: str) -> tuple[str, list[str]]:
    """A prompt without the pictures that it names, and these in base64, where the session's model
    reads images; else the prompt as it is. Raises CliError, ClientError."""
    found = find_images(text)
    if not found.paths:
        return text, []
    if not session.can("vision"):
        named = ", ".join(written for written, _ in found.paths)
        status(f"{session.model} cannot process images; {named} is sent as text")
        return text, []
    return found.text, read_images(found.paths)


def _file(plain: str) -> Path | None:
    if "/" not in plain:
        return None
    try:
        path = Path(plain).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a name that no file can have
        return None
