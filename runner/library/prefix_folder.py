"""The saved prefixes of one way to load a model: a tree of parts, each a file.

A part holds the states of some tokens that come after those of its parent. Its name is an HMAC of
its parent, its owner and its tokens, so that a name tells nobody anything, and content that does
not belong to a name is found. Matches are made by comparing tokens. Whoever computed it, a part of
public tokens is for everybody, any other for its owner.

The index is read from the headers; the content of a file is for nobody before its seal is checked.
Knows neither limits nor workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.errors import RegistryError
from runner.library.files import open_regular
from runner.library.sealed_file import (
    UNFINISHED,
    Header,
    SealBroken,
    SealedReader,
    SealedWriter,
    read_header,
)
from runner.token_prefix import common_prefix
from runner.types import Adapters

MAGIC = b"hearth prefix 1\n"
NAME_DIGITS = 32


@dataclass(frozen=True, slots=True, eq=False)
class SavedPart:
    """token_s: the seconds that computing one of its tokens took. whole: it must be used so."""

    parent: str  # its name; "": this is a first one
    owner: str  # "": its tokens are public
    adapters: Adapters  # that acted
    tokens: array[int]
    token_s: float
    whole: bool


@dataclass(frozen=True, slots=True)
class PartMatch:
    """The first length tokens of part are those that were looked for, after its parent's."""

    name: str
    part: SavedPart
    length: int


class PrefixFolder:
    """The tree of one folder. Not for several threads at once."""

    def __init__(self, path: Path, secret: bytes, about: Header) -> None:
        """about: what the states depend on, and the model's name, for people."""
        self.path = path
        self._secret = secret
        self._about = about
        self._parts: dict[str, SavedPart] = {}
        self._children: dict[str, list[str]] = {}
        for file in path.iterdir() if path.is_dir() else ():
            self._index(file)

    @property
    def parts(self) -> list[SavedPart]:
        """All of them."""
        return list(self._parts.values())

    def owner_tag(self, salt: str | None) -> str:
        """What stands for the owners that know salt."""
        return self._hmac(b"owner", (salt or "").encode())[:16]

    def match(self, tokens: array[int], owner: str, adapters: Adapters) -> list[PartMatch]:
        """The parts that give most of the beginning of tokens, in their order. At least one token
        is left over."""
        found: list[PartMatch] = []
        at, parent = 0, ""
        while at < len(tokens) - 1:
            rest = tokens[at : len(tokens) - 1]
            best: PartMatch | None = None
            for name in self._children.get(parent, ()):
                part = self._parts[name]
                if part.owner not in ("", owner) or part.adapters != adapters:
                    continue
                length = _usable(part, rest)
                if length and (best is None or length > best.length):
                    best = PartMatch(name, part, length)
            if best is None:
                break
            found.append(best)
            at, parent = at + best.length, best.name
            if best.length < len(best.part.tokens):
                break
        return found

    def has(self, name: str) -> bool:
        """Whether a part is there."""
        return name in self._parts

    def writer(self, new: SavedPart) -> SealedWriter:
        """Begin the file of a part. Raises OSError."""
        header = {
            "parent": new.parent,
            "owner": new.owner,
            "adapters": new.adapters,
            "tokens": new.tokens.tolist(),
            "token_s": new.token_s,
            "whole": new.whole,
            "about": self._about,
        }
        return SealedWriter(self.path / self.name(new), MAGIC, self._secret, header)

    def add(self, new: SavedPart) -> list[str]:
        """The part's file is there. Gives the names of the parts that it makes needless."""
        self._add(self.name(new), new)
        return [
            name
            for name in self._children[new.parent]
            if name not in self._children and _covers(new, self._parts[name])
        ]

    def open(self, name: str) -> SealedReader:
        """A part's file, found to be whole and this daemon's. Raises SealBroken, OSError."""
        file = os.fdopen(open_regular(self.path / name), "rb")
        try:
            reader = SealedReader(file, MAGIC, self._secret)
            if self.name(_part(reader.header)) != name:
                raise SealBroken("is another part's")
        except BaseException:
            file.close()
            raise
        return reader

    def forget(self, name: str) -> None:
        """The part's file is gone. What comes after it stays for when it is computed again."""
        part = self._parts.pop(name, None)
        if part is not None:
            self._children[part.parent].remove(name)
            if not self._children[part.parent]:
                del self._children[part.parent]

    def name(self, new: SavedPart) -> str:
        """That of a part's file."""
        facts = json.dumps([new.parent, new.owner, new.adapters, new.whole]).encode()
        return self._hmac(b"part", facts, new.tokens.tobytes())[:NAME_DIGITS]

    def _hmac(self, *texts: bytes) -> str:
        seal = hmac.new(self._secret, self.path.name.encode(), hashlib.sha256)
        for text in texts:
            seal.update(len(text).to_bytes(8, "big") + text)
        return seal.hexdigest()

    def _add(self, name: str, part: SavedPart) -> None:
        if name not in self._parts:
            self._parts[name] = part
            self._children.setdefault(part.parent, []).append(name)

    def _index(self, file: Path) -> None:
        """Take a file into the index; one that cannot be used goes."""
        try:
            with os.fdopen(open_regular(file), "rb") as opened:
                new = _part(read_header(opened, MAGIC))
            if self.name(new) != file.name:
                raise SealBroken("is another part's")
        except (SealBroken, RegistryError, OSError):
            if not file.name.startswith(UNFINISHED):  # which may be another thread's at work
                with contextlib.suppress(OSError):
                    file.unlink()
        else:
            self._add(file.name, new)


def about_of(path: Path) -> Header | None:
    """What a folder's files say of themselves, whoever wrote them; None: nothing."""
    for file in _files(path):
        try:
            with os.fdopen(open_regular(file), "rb") as opened:
                about = read_header(opened, MAGIC).get("about")
        except (SealBroken, RegistryError, OSError):
            continue
        if isinstance(about, dict):
            return about
    return None


def _files(path: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from path.iterdir()


def _usable(part: SavedPart, tokens: array[int]) -> int:
    length = common_prefix(part.tokens, tokens, len(tokens))
    return 0 if part.whole and length < len(part.tokens) else length


def _covers(part: SavedPart, other: SavedPart) -> bool:
    """Whether all uses of other can be had from part."""
    if part.whole or other.whole or (other.owner, other.adapters) != (part.owner, part.adapters):
        return False
    size = len(other.tokens)
    return size < len(part.tokens) and part.tokens[:size] == other.tokens


def checked_adapters(given: Any) -> Adapters:
    """Adapters as they come in JSON. Raises TypeError or ValueError for what is none, such as the
    scales that files of version 0.1 have."""
    return tuple((str(name), float(scale)) for name, scale in given)


def _part(header: dict[str, Any]) -> SavedPart:
    """Raises SealBroken for what no part has."""
    try:
        return SavedPart(
            parent=str(header["parent"]),
            owner=str(header["owner"]),
            adapters=checked_adapters(header.get("adapters", header.get("scales"))),
            tokens=array("i", header["tokens"]),
            token_s=float(header["token_s"]),
            whole=bool(header["whole"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise SealBroken("has a damaged header") from None
