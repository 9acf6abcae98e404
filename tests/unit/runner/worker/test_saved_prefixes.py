"""When prompts are saved, and when saved ones are loaded."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from runner.backends.backend import Capacity, SavedState
from runner.engine.swap import SwappedSequence
from runner.types import UNSAVED_SALT
from runner.worker.prefix_channel import ChannelError
from runner.worker.prefix_client import FoundPart, Owner, PartToSave, PrefixClient
from runner.worker.saved_prefixes import PrefixLoader, PrefixSaver, Rates
from tests.fake_backend import FakeBackend

STEP = 100
ME = Owner("model:key:", ())
TOKENS = array("i", range(1000, 1350))


@dataclass
class Parts:
    """A state in parts of STEP tokens."""

    tokens: int
    size_bytes: int = 100

    def parts(self) -> Sequence[memoryview]:
        return [memoryview(b"%d" % at) for at in range(0, self.tokens, STEP)]


class Backend(FakeBackend):
    def join_parts(self, parts: Sequence[memoryview], tokens: int) -> SavedState:
        return Parts(tokens)


@dataclass
class Client(PrefixClient):
    """The daemon's side, in memory. gone: it fails from now on."""

    found: list[FoundPart] = field(default_factory=list)
    saved: list[PartToSave] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    missing: str = ""
    gone: bool = False

    def find(self, tokens: array[int], owner: Owner) -> list[FoundPart]:
        if self.gone:
            raise ChannelError("gone")
        return self.found

    def open(self, name: str) -> memoryview | None:
        self.opened.append(name)
        return None if name == self.missing else memoryview(b"state")

    def use(self, names: Sequence[str]) -> None:
        pass

    def save(self, part: PartToSave, owner: Owner) -> str | None:
        self.saved.append(part)
        return f"part {len(self.saved)}"


def parts(*lengths: int, public: int = 0, token_s: float = 0.01) -> list[FoundPart]:
    return [
        FoundPart(f"p{at}", length, tuple(range(STEP - length)), at < public, token_s)
        for at, length in enumerate(lengths)
    ]


@pytest.fixture
def backend() -> Backend:
    capacity = Capacity(1000, 4, 1000, 512, 300, 1, True, part_tokens=STEP, state_format="x")
    return Backend(capacity)


def load(
    client: Client, backend: Backend, known: int = 0, compute_s: float | None = 0.01
) -> SwappedSequence | None:
    loader = PrefixLoader(client, backend, Rates(lambda: compute_s))
    return loader.load(TOKENS, ME, known)


def test_what_is_saved_is_loaded_with_what_follows_it(backend: Backend) -> None:
    copy = load(Client(found=parts(STEP, STEP, 40, public=1)), backend)
    assert copy is not None
    assert copy.tokens == TOKENS[:240] + array("i", range(60))
    assert (copy.computed, copy.public, copy.salt, copy.mapped) == (300, STEP, ME.salt, True)
    assert copy.held_bytes == 0


def test_a_part_that_is_gone_ends_what_is_loaded(backend: Backend) -> None:
    copy = load(Client(found=parts(STEP, STEP, STEP), missing="p1"), backend)
    assert copy is not None
    assert copy.tokens == TOKENS[:STEP]
    assert load(Client(found=parts(STEP, STEP, STEP), missing="p0"), backend) is None


@pytest.mark.parametrize(
    ("known", "compute_s", "recorded_s"),
    [(300, 0.01, 0.01), (250, 0.01, 0.01), (0, 1e-5, 0.01), (0, None, 1e-5)],
)
def test_nothing_is_opened_where_computing_is_as_fast(
    backend: Backend, known: int, compute_s: float | None, recorded_s: float
) -> None:
    client = Client(found=parts(STEP, STEP, STEP, token_s=recorded_s))
    assert load(client, backend, known, compute_s) is None
    assert client.opened == []


def test_a_disk_slower_than_computing_is_left_alone_from_then_on(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0

    def slow(name: str) -> memoryview | None:
        nonlocal now_s
        now_s += 5.0
        return memoryview(b"state")

    client = Client(found=parts(STEP, STEP, STEP))
    monkeypatch.setattr(client, "open", slow)
    monkeypatch.setattr("runner.worker.saved_prefixes.time.perf_counter", lambda: now_s)
    loader = PrefixLoader(client, backend, Rates(lambda: 0.01))
    copy = loader.load(TOKENS, ME, 0)
    assert copy is not None
    assert copy.computed == STEP
    assert loader.load(TOKENS, ME, 0) is None


def test_once_the_daemon_fails_it_is_not_asked_again(backend: Backend) -> None:
    client = Client(found=parts(STEP, STEP, STEP), gone=True)
    loader = PrefixLoader(client, backend, Rates(lambda: 0.01))
    assert loader.load(TOKENS, ME, 0) is None
    client.gone = False
    assert loader.load(TOKENS, ME, 0) is None


def copy_of(count: int, salt: str = "model:key:", public: int = 0) -> SwappedSequence:
    return SwappedSequence(TOKENS[:count], count, Parts(count), salt, public)


def saver_with(client: Client, backend: Backend, compute_s: float | None = 0.01) -> PrefixSaver:
    return PrefixSaver(client, backend, Rates(lambda: compute_s))


def test_only_parts_that_are_not_there_are_saved(backend: Backend) -> None:
    client = Client(found=parts(STEP, 40))
    saver = saver_with(client, backend)
    saver.add(copy_of(250, public=2 * STEP))
    saver.flush(10.0)
    assert [(part.parent, len(part.tokens), part.public) for part in client.saved] == [
        ("p0", STEP, True),
        ("part 1", 50, False),
    ]
    assert [bytes(part.state) for part in client.saved] == [b"100", b"200"]


def test_nothing_is_saved_twice(backend: Backend) -> None:
    client = Client(found=[*parts(STEP, STEP), FoundPart("tail", 50, (), False, 0.01)])
    saver = saver_with(client, backend)
    saver.add(copy_of(250))
    saver.flush(10.0)
    assert client.saved == []


@pytest.mark.parametrize(
    ("copy", "compute_s"),
    [
        (copy_of(50), 0.01),
        (copy_of(250, salt=f"model:key:{UNSAVED_SALT}1"), 0.01),
        (copy_of(250), 1e-5),
        (copy_of(250), None),
        (SwappedSequence(array("i", [-1] * 200), 200, Parts(200)), 0.01),
    ],
)
def test_what_shall_not_or_need_not_be_saved_is_not(
    backend: Backend, copy: SwappedSequence, compute_s: float | None
) -> None:
    client = Client()
    saver = saver_with(client, backend, compute_s)
    saver.add(copy)
    saver.flush(10.0)
    assert client.saved == []


def test_the_last_used_is_saved_first(backend: Backend) -> None:
    client = Client()
    saver = saver_with(client, backend)
    saver.add(copy_of(100))
    saver.add(SwappedSequence(array("i", [7] * 100), 100, Parts(100)))
    saver.flush(10.0)
    assert [part.tokens[0] for part in client.saved] == [7, 1000]


def test_a_saver_ends_when_the_daemon_does(backend: Backend) -> None:
    client = Client(gone=True)
    saver = saver_with(client, backend)
    saver.start()
    saver.add(copy_of(100))
    saver.join(60.0)
    assert not saver.is_alive()
    saver.add(copy_of(100))
    saver.flush(10.0)
    assert client.saved == []
