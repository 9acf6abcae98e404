"""What a worker that was taken over can do with saved prefixes: harm its own model's, no other."""

from __future__ import annotations

import json
import socket
import struct
import threading
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.library.prefix_service import PrefixService
from runner.library.saved_prefixes import SavedPrefixes
from runner.settings import Settings
from runner.types import LoadPlan
from runner.worker.prefix_channel import ChannelError
from runner.worker.prefix_client import Owner, PartToSave, PrefixClient

PLAN = LoadPlan("/store/sha256-1", "llamacpp", 4096, 4096, 4)
ME = Owner("0123456789abcdef::me", ())
TOKENS = array("i", range(16))
STATE = memoryview(bytes(range(256)) * 20)


@pytest.fixture
def service(tmp_path: Path) -> PrefixService:
    return PrefixService(SavedPrefixes(Settings(home=tmp_path, cache_dir=tmp_path / "cache")))


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


@pytest.fixture
def client(service: PrefixService, opened: list[socket.socket]) -> PrefixClient:
    return connect(service, opened)


def attached(service: PrefixService, plan: LoadPlan = PLAN) -> list[socket.socket]:
    """The worker's ends."""
    theirs = []
    for serve in service.attach("echo", plan):
        ours, end = socket.socketpair()
        serve(ours)
        theirs.append(end)
    return theirs


def connect(
    service: PrefixService, opened: list[socket.socket], plan: LoadPlan = PLAN, by: str = "me"
) -> PrefixClient:
    channels = attached(service, plan)
    opened += channels
    return PrefixClient(channels[0], by)


def has_ended(channel: socket.socket) -> bool:
    try:
        return channel.recv(1 << 16) == b""
    except ConnectionResetError:  # there was more to read
        return True


def part(parent: str = "", tokens: array[int] = TOKENS, *, public: bool = False) -> PartToSave:
    return PartToSave(parent, tokens, public, whole=False, token_s=0.01, state=STATE)


def test_what_is_saved_comes_back_in_a_file_that_can_only_be_read(client: PrefixClient) -> None:
    name = client.save(part(), ME)
    assert name is not None
    (found,) = client.find(TOKENS[:10], ME)
    assert (found.name, found.length, found.rest) == (name, 9, tuple(range(9, 16)))
    state = client.open(name)
    assert state == STATE
    assert state.readonly
    client.use([name])
    assert client.save(part(), ME) == name


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, path="/store/sha256-2"),
        replace(PLAN, adapters=(("/store/sha256-3", 1.0),)),
        replace(PLAN, kv_cache_type="q8_0"),
        replace(PLAN, native_kernels=False),
        replace(PLAN, rope_frequency_base=1e6),
        replace(PLAN, flash_attention=False),
    ],
)
def test_another_model_or_way_to_load_it_finds_and_opens_nothing(
    service: PrefixService, client: PrefixClient, opened: list[socket.socket], plan: LoadPlan
) -> None:
    name = client.save(part(public=True), ME)
    assert name is not None
    other = connect(service, opened, plan)
    assert other.find(TOKENS, ME) == []
    assert other.open(name) is None
    assert connect(service, opened, by="other kernels").find(TOKENS, ME) == []
    (folder,) = service.prefixes.root.iterdir()
    for attempt in (f"../{folder.name}/{name}", str(folder / name), "../../state/slots.key", ""):
        assert other.open(attempt) is None
    forged = other.save(replace(part(), parent=name), ME)
    assert forged is None
    found = client.find(TOKENS, ME)
    assert [one.name for one in found] == [name]


def test_adapters_and_salts_are_kept_apart(client: PrefixClient) -> None:
    scaled = Owner(ME.salt, (("one", 0.5),))
    client.save(part(), scaled)
    assert client.find(TOKENS, ME) == []
    for others in ((("one", 1.0),), (("two", 0.5),)):
        assert client.find(TOKENS, Owner(ME.salt, others)) == []
    assert client.find(TOKENS, Owner("0123456789abcdef::you", (("one", 0.5),))) == []
    assert sum(one.length for one in client.find(TOKENS, scaled)) == 15


@pytest.mark.parametrize(
    "message",
    [
        {"op": "read", "size": 0},
        {"op": "open", "size": 0},
        {"op": "find", "size": -1, "salt": "", "adapters": []},
        {"op": "find", "size": 3, "salt": "", "adapters": []},
        {"op": "find", "size": 0, "salt": "", "adapters": ["x"]},
        {"op": "save", "size": 0, "count": "x"},
        {"op": "use", "size": 0, "names": 5},
        [],
        "x",
        {"op": "hello"},
    ],
)
def test_nonsense_ends_the_channel_and_no_other(
    service: PrefixService, client: PrefixClient, opened: list[socket.socket], message: Any
) -> None:
    name = client.save(part(), ME)
    evil = attached(service)
    opened += evil
    PrefixClient(evil[0], "me")
    text = json.dumps(message).encode()
    evil[0].sendall(struct.pack(">I", len(text)) + text + b"xyz")
    evil[0].shutdown(socket.SHUT_WR)
    assert has_ended(evil[0])
    assert [one.name for one in client.find(TOKENS, ME)] == [name]


def test_a_long_message_is_not_waited_for(
    service: PrefixService, opened: list[socket.socket]
) -> None:
    evil = attached(service)
    opened += evil
    evil[0].sendall(b"\xff" * 4)
    assert has_ended(evil[0])


def test_a_worker_that_dies_while_it_saves_leaves_nothing(
    service: PrefixService, opened: list[socket.socket]
) -> None:
    evil = attached(service)
    PrefixClient(evil[0], "me")
    message = {
        "op": "save",
        "parent": "",
        "count": 2,
        "size": 5000,
        "public": True,
        "salt": "",
        "adapters": [],
        "token_s": 0.1,
        "whole": False,
    }
    text = json.dumps(message).encode()
    evil[0].sendall(struct.pack(">I", len(text)) + text + b"\1" * 2000)
    for each in evil:
        each.close()
    for thread in threading.enumerate():
        if thread.name == "prefixes":
            thread.join()
    later = connect(service, opened)
    assert later.save(part(public=True), ME) is not None
    assert sum(one.length for one in later.find(TOKENS, ME)) == 15
    assert list(service.prefixes.check()) == []
    assert len([path for path in service.prefixes.root.rglob("*") if path.is_file()]) == 1


def test_the_daemon_gone_is_an_error_of_its_own(opened: list[socket.socket]) -> None:
    ours, theirs = socket.socketpair()
    opened.append(ours)
    theirs.close()
    with pytest.raises(ChannelError):
        PrefixClient(ours, "me")


def test_only_backends_whose_states_can_travel_get_channels(
    service: PrefixService, tmp_path: Path
) -> None:
    assert service.attach("echo", replace(PLAN, backend="torch")) == ()
    assert service.attach("echo", replace(PLAN, embedding=True)) == ()
    off = SavedPrefixes(Settings(home=tmp_path, cache_size=0))
    assert PrefixService(off).attach("echo", PLAN) == ()
