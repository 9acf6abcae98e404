"""Reads the tools of everyday domains from `catalogue.toml`, whose head explains its fields."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.ember.exchange import Json

PATH = Path(__file__).with_name("catalogue.toml")


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter: its letter in the questions, its kind, the names it may have."""

    letter: str
    kind: str
    names: tuple[str, ...]
    optional: bool


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a tool can do."""

    verbs: tuple[str, ...]
    nouns: tuple[str, ...]
    describe: str
    slots: tuple[Slot, ...]
    asks: tuple[str, ...]
    known: bool


def _slot(text: str) -> Slot:
    letter, kind, names = text.split(":")
    return Slot(letter.rstrip("?"), kind, tuple(names.split(",")), letter.endswith("?"))


def _action(row: dict[str, Json]) -> Action:
    return Action(
        verbs=tuple(row["verbs"].split()),
        nouns=tuple(row["nouns"].split()),
        describe=row["describe"],
        slots=tuple(map(_slot, row["slots"])),
        asks=tuple(row["asks"]),
        known=row.get("known", False),
    )


ACTIONS = tuple(map(_action, tomllib.loads(PATH.read_text())["action"]))
