"""Random concurrent work on a store with a kill in the middle: `make store-histories` for many.

What is acknowledged stays; what was not acknowledged is there wholly or not at all; nobody ever
sees half a model.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from registry.digest import Digest
from tests.registry_server import FakeRegistry, fake_registry
from tests.store_operations import PULLED, Place, events, random_content, whole
from tests.store_zygote import Zygote, zygote

HISTORIES = 200
LAST_CALL = 1500
REMOTE = random_content(2, 100_000)


@dataclass(slots=True)
class Step:
    """A change of one name. value: the model's ID, "" for none, "?" when only its
    acknowledgement would have told. Times are places in the log."""

    name: str
    value: str
    begun: int
    ended: float = math.inf


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        registry.add_model(PULLED, REMOTE)
        yield registry


def read_history(path: Path, pulled: str) -> tuple[list[Step], list[list[str]]]:
    """The steps that may have changed something, and what threads noted."""
    steps: dict[str, Step] = {}
    notes = []
    for time, event in enumerate(events(path)):
        if event[0] == "begin":
            _, number, _, name, value = event
            steps[str(number)] = Step(name, value.replace("pulled", pulled), time)
        elif event[0] == "ack":
            step = steps[str(event[1])]
            step.ended, step.value = time, str(event[2]).replace("pulled", pulled)
        else:
            notes.append(event)
    return list(steps.values()), notes


def possible(name: str, steps: list[Step], known: set[str]) -> set[str]:
    """The values that name may have at the end: of each step that no later one has surely
    replaced."""
    mine = [Step(name, "", -1, -1), *(step for step in steps if step.name == name)]
    values: set[str] = set()
    for step in mine:
        if not any(later.begun > step.ended and later.ended < math.inf for later in mine):
            values |= known if step.value == "?" else {step.value}
    return values


def check(root: Path, pulled: Digest) -> int:
    """The store after a history; gives how many steps were acknowledged."""
    steps, notes = read_history(root.parent / "log", str(pulled))
    assert [note for note in notes if note[1] == "half"] == []
    models = {name: str(digest) for name, digest in whole(root).items()}
    known = {step.value for step in steps if step.value not in ("", "?")}
    for name in {step.name for step in steps} | set(models):
        assert models.get(name, "") in possible(name, steps, known), name
    return sum(step.ended < math.inf for step in steps)


def run_history(process: Zygote, seed: int, kill_at: int, place: Place, pulled: Digest) -> int:
    place.root.parent.mkdir(parents=True)
    status = process.run("history", place, kill_at, seed)
    assert status in (0, -9), (seed, kill_at)
    return check(place.root, pulled)


def histories(count: int, seed: int, remote: FakeRegistry, folder: Path) -> int:
    """Run that many; gives how many steps were acknowledged in all."""
    choice, acknowledged = random.Random(seed), 0
    pulled = Digest.of(remote.manifests[f"{PULLED}:latest"][1])
    with zygote(folder) as process:
        for number in range(count):
            place = Place(folder / f"h{number}" / "models", remote.address)
            kill_at = choice.randint(20, LAST_CALL)
            acknowledged += run_history(process, seed + number, kill_at, place, pulled)
            shutil.rmtree(place.root.parent)
    return acknowledged


def test_nothing_acknowledged_is_lost_and_nothing_half_is_seen(
    remote: FakeRegistry, tmp_path: Path
) -> None:
    assert histories(6, 31, remote, tmp_path) > 10


@pytest.mark.slow
def test_of_many_histories_none_loses_what_was_acknowledged(
    remote: FakeRegistry, tmp_path: Path
) -> None:
    acknowledged = histories(HISTORIES, 1000, remote, tmp_path)
    print(f"{HISTORIES} histories with a kill each, {acknowledged} acknowledged steps, none lost")
    assert acknowledged > HISTORIES


def test_the_judge_of_histories_knows_lost_and_replaced_steps() -> None:
    first, second = Step("a", "1", 0, 1), Step("a", "2", 2, 3)
    assert possible("a", [first, second], set()) == {"2"}
    assert possible("a", [first, Step("a", "2", 2)], set()) == {"1", "2"}
    assert possible("a", [first, Step("a", "2", 0, 5)], set()) == {"1", "2"}
    assert possible("a", [Step("a", "?", 0)], {"9"}) == {"", "9"}
