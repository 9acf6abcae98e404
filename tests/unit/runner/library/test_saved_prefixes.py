"""Saved prefixes: what is found, for whom, what is dropped, and how much there is of it."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from array import array
from pathlib import Path

import pytest

from runner.library import saved_prefixes
from runner.library.prefix_folder import PrefixFolder, SavedPart
from runner.library.saved_prefixes import SavedPrefixes
from runner.library.sealed_file import UNFINISHED, SealedWriter
from runner.settings import Settings
from runner.token_prefix import common_prefix
from runner.types import Adapters

ABOUT = {"model": "echo", "files": ["sha256-1"]}
STATE = b"state" * 4000
STEP = 8


def settings(tmp_path: Path, size: int | None = None) -> Settings:
    return Settings(home=tmp_path, cache_dir=tmp_path / "cache", cache_size=size)


@pytest.fixture
def prefixes(tmp_path: Path) -> SavedPrefixes:
    return SavedPrefixes(settings(tmp_path))


def folder_of(prefixes: SavedPrefixes) -> PrefixFolder:
    assert prefixes.is_on
    return prefixes.folder(ABOUT)


def save(
    prefixes: SavedPrefixes,
    tokens: list[int],
    salt: str = "me",
    public: int = 0,
    state: bytes = STATE,
    adapters: Adapters = (),
) -> list[str]:
    """As a worker does it; the names of the parts."""
    folder, names = folder_of(prefixes), [""]
    for start in range(0, len(tokens), STEP):
        piece = array("i", tokens[start : start + STEP])
        owner = "" if start + STEP <= public else folder.owner_tag(salt)
        part = SavedPart(names[-1], owner, adapters, piece, 0.01, whole=False)
        writer = prefixes.begin(folder, part, len(state))
        if writer is not None:
            writer.write(state)
            prefixes.publish(folder, part, writer)
        names.append(folder.name(part))
    return names[1:]


def found(
    prefixes: SavedPrefixes, tokens: list[int], salt: str = "me", adapters: Adapters = ()
) -> int:
    folder = folder_of(prefixes)
    return sum(match.length for match in prefixes.match(folder, array("i", tokens), salt, adapters))


def files(prefixes: SavedPrefixes) -> list[Path]:
    return [path for path in prefixes.root.rglob("*") if path.is_file()]


def test_the_longest_beginning_is_found_again_by_another_daemon(
    prefixes: SavedPrefixes, tmp_path: Path
) -> None:
    save(prefixes, list(range(20)))
    save(prefixes, [*range(10), *range(50, 60)])
    for one in (prefixes, SavedPrefixes(settings(tmp_path))):
        assert found(one, list(range(20))) == 19
        assert found(one, [*range(20), 7]) == 20
        assert found(one, [*range(10), *range(50, 70)]) == 20
        assert found(one, [*range(12), 99, 99]) == 12
        assert found(one, [5, *range(20)]) == 0
        assert found(one, list(range(20)), adapters=(("one", 0.5),)) == 0


def test_matches_are_those_of_comparing_every_sequence(prefixes: SavedPrefixes) -> None:
    choice = random.Random(1)
    saved = [[choice.randint(0, 1) for _ in range(choice.randint(1, 40))] for _ in range(30)]
    for tokens in saved:
        save(prefixes, tokens)
    for _ in range(100):
        asked = [choice.randint(0, 1) for _ in range(choice.randint(1, 40))]
        best = max(common_prefix(array("i", asked[:-1]), array("i", one), 40) for one in saved)
        assert found(prefixes, asked) == best


def test_owners_have_only_public_tokens_in_common(prefixes: SavedPrefixes) -> None:
    save(prefixes, list(range(24)), salt="me", public=17)
    assert found(prefixes, list(range(30)), salt="me") == 24
    assert found(prefixes, list(range(30)), salt="other") == 16
    save(prefixes, list(range(100, 124)), salt="me")
    assert found(prefixes, list(range(100, 130)), salt="other") == 0
    names = " ".join(path.name for path in files(prefixes))
    assert "me" not in names


def test_names_depend_on_the_secret(tmp_path: Path) -> None:
    names = []
    for home in ("one", "two"):
        own = SavedPrefixes(settings(tmp_path / home))
        names += save(own, list(range(STEP)))
    assert len(set(names)) == 2


def test_a_longer_part_takes_the_place_of_its_beginning(prefixes: SavedPrefixes) -> None:
    save(prefixes, list(range(11)))
    save(prefixes, list(range(14)))
    assert len(files(prefixes)) == 2
    save(prefixes, [*range(12), 99])
    assert len(files(prefixes)) == 3


def test_what_must_be_used_whole_is_not_used_in_part(prefixes: SavedPrefixes) -> None:
    folder = folder_of(prefixes)
    part = SavedPart("", folder.owner_tag("me"), (), array("i", range(9)), 0.01, whole=True)
    writer = prefixes.begin(folder, part, 1)
    assert writer is not None
    prefixes.publish(folder, part, writer)
    assert found(prefixes, [*range(9), 5]) == 9
    assert found(prefixes, list(range(9))) == 0
    assert found(prefixes, [*range(8), 5, 5]) == 0


def test_a_state_comes_back_as_it_was(prefixes: SavedPrefixes) -> None:
    (name,) = save(prefixes, list(range(STEP)))
    opened = prefixes.open(folder_of(prefixes), name)
    assert opened is not None
    with opened.file as file:
        file.seek(opened.offset)
        assert file.read(opened.size_bytes) == STATE


def test_modes_are_for_the_user_alone(prefixes: SavedPrefixes) -> None:
    save(prefixes, list(range(STEP)))
    (file,) = files(prefixes)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for folder in (file.parent, prefixes.root):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("fresh", [False, True])
def test_no_wrong_byte_is_ever_given_out(tmp_path: Path, fresh: bool) -> None:
    """Whatever byte is wrong, and wherever a file ends: it is dropped."""
    state = b"0123456789" * 3
    one = SavedPrefixes(settings(tmp_path))
    (name,) = save(one, list(range(STEP)), state=state)
    (file,) = files(one)
    good = file.read_bytes()
    damaged = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(0, len(good), 17)]
    damaged += [good[:size] for size in range(0, len(good), 41)] + [good + b"x"]
    for content in damaged:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        if fresh:
            one = SavedPrefixes(settings(tmp_path))
        opened = one.open(folder_of(one), name) if folder_of(one).has(name) else None
        assert opened is None
        assert not file.exists()
        assert found(one, list(range(20))) == 0
        save(one, list(range(STEP)), state=state)


def test_a_file_under_the_name_of_another_is_dropped(prefixes: SavedPrefixes) -> None:
    mine, yours = save(prefixes, list(range(2 * STEP)))
    folder = folder_of(prefixes)
    shutil.copy(folder.path / mine, folder.path / yours)
    assert prefixes.open(folder, yours) is None
    assert found(prefixes, list(range(2 * STEP))) == STEP


def test_links_are_not_followed(prefixes: SavedPrefixes, tmp_path: Path) -> None:
    (name,) = save(prefixes, list(range(STEP)))
    folder = folder_of(prefixes)
    (folder.path / name).rename(tmp_path / "elsewhere")
    (folder.path / name).symlink_to(tmp_path / "elsewhere")
    assert prefixes.open(folder, name) is None
    assert (tmp_path / "elsewhere").exists()


def test_the_limit_holds_and_the_least_recently_used_goes(tmp_path: Path) -> None:
    limit = 12 * len(STATE)
    one = SavedPrefixes(settings(tmp_path, limit))
    folder = folder_of(one)
    first = save(one, list(range(3 * STEP)))
    for age, name in enumerate(reversed(first)):
        os.utime(folder.path / name, (1_000_000 + age, 1_000_000 + age))
    one.use(folder, first)
    for number in range(40):
        (name,) = save(one, [1000 + number] * STEP)
        assert sum(path.stat().st_size for path in files(one)) <= limit
        os.utime(folder.path / name, (2_000_000 + number,) * 2)
    assert one.size_bytes == sum(path.stat().st_size for path in files(one))
    assert found(one, list(range(3 * STEP + 1))) == 3 * STEP
    assert found(one, [1000] * (STEP + 1)) == 0
    again = SavedPrefixes(settings(tmp_path, limit))
    assert again.size_bytes == one.size_bytes


def test_there_are_at_most_so_many_files(
    prefixes: SavedPrefixes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_prefixes, "MAX_FILES", 10)
    for number in range(40):
        save(prefixes, [1000 + number] * STEP)
        assert len(files(prefixes)) <= 10
    assert found(prefixes, [1039] * (STEP + 1)) == STEP
    assert len(folder_of(prefixes).parts) == len(files(prefixes))


def test_what_is_larger_than_the_limit_is_not_saved(tmp_path: Path) -> None:
    one = SavedPrefixes(settings(tmp_path, 100))
    save(one, list(range(STEP)))
    assert files(one) == []


def test_off_means_that_nothing_is_there(tmp_path: Path) -> None:
    one = SavedPrefixes(settings(tmp_path, 0))
    assert not one.is_on
    assert not one.root.exists()


def test_the_folder_of_another_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = SavedPrefixes(settings(tmp_path))
    one.root.mkdir(mode=0o755)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not one.is_on
    assert "belongs to another user" in caplog.text


def test_what_is_no_folder_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = SavedPrefixes(settings(tmp_path))
    one.root.write_text("mine")
    assert not one.is_on
    assert list(one.check()) == []
    assert (one.entries(), one.clear(), one.root.read_text()) == ([], 0, "mine")
    assert caplog.text.count("neither saved nor read") == 1


def test_a_folder_that_others_could_read_is_closed(tmp_path: Path) -> None:
    one = SavedPrefixes(settings(tmp_path))
    one.root.mkdir(mode=0o755)
    assert one.is_on
    assert stat.S_IMODE(one.root.stat().st_mode) == 0o700


def test_entries_of_another_machine_count_and_are_not_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    here, there = (
        SavedPrefixes(Settings(home=tmp_path / home, cache_dir=shared)) for home in ("a", "b")
    )
    save(there, list(range(STEP)))
    assert found(here, list(range(20))) == 0
    assert [entry.model for entry in here.entries()] == [None]
    assert here.size_bytes == there.size_bytes
    assert list(here.check()) == []
    assert found(there, list(range(20))) == STEP


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_costs_one_line_of_log(
    prefixes: SavedPrefixes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    save(prefixes, list(range(STEP)))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(SealedWriter, "publish", refuse)
    for start in range(100, 130, 10):
        save(prefixes, list(range(start, start + STEP)))
    assert caplog.text.count("not saved for a minute") == 1
    assert len(files(prefixes)) == 1
    assert found(prefixes, list(range(20))) == STEP


def test_the_last_space_of_the_disk_stays_free(
    prefixes: SavedPrefixes, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(prefixes, list(range(STEP)))
    monkeypatch.setattr(prefixes, "_disk", lambda: (4 << 30, 40 << 10))
    save(prefixes, list(range(100, 100 + STEP)))
    assert len(files(prefixes)) == 1


def test_a_check_leaves_only_what_can_be_used(prefixes: SavedPrefixes, tmp_path: Path) -> None:
    names = save(prefixes, list(range(3 * STEP)))
    folder = folder_of(prefixes)
    (folder.path / f"{UNFINISHED}{'0' * 32}").write_bytes(b"half")
    (folder.path / "notes.txt").write_text("mine")
    last = folder.path / names[2]
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    reasons = dict(prefixes.check())
    assert {Path(path).name for path in reasons} == {
        f"{UNFINISHED}{'0' * 32}",
        "notes.txt",
        names[2],
    }
    assert list(prefixes.check()) == []
    assert found(prefixes, list(range(30))) == 2 * STEP
    assert {path.name for path in files(prefixes)} == set(names[:2])


def test_clear_takes_one_model_or_all_and_nothing_else(tmp_path: Path) -> None:
    one = SavedPrefixes(settings(tmp_path))
    save(one, list(range(STEP)))
    other = one.folder({"model": "other", "files": []})
    part = SavedPart("", "", (), array("i", [1, 2]), 0.01, whole=False)
    writer = one.begin(other, part, 0)
    assert writer is not None
    one.publish(other, part, writer)
    (one.root / "notes.txt").write_text("mine")
    assert [entry.model for entry in one.entries()].count("other") == 1
    assert one.clear("other") > 0
    assert [entry.model for entry in one.entries()] == ["echo"]
    assert one.clear() > len(STATE)
    assert [path.name for path in one.root.iterdir()] == ["notes.txt"]
    assert found(one, list(range(20))) == 0
    assert one.size_bytes == 0
