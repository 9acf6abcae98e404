"""When freed memory is given back, and what is kept in one piece."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from runner.server import freed_memory

MIB = 1 << 20
Act = Callable[..., list[str]]


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> Act:
    """acts(start, size, ...): what is done at those sizes in MiB; (before, after) for one at which
    the heap is trimmed."""

    def acts(*sizes: int | tuple[int, int]) -> list[str]:
        done: list[str] = []
        each = (one for size in sizes for one in (size if isinstance(size, tuple) else (size,)))
        libc = SimpleNamespace(malloc_trim=lambda _: done.append("trim"))
        monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda _: libc)
        monkeypatch.setattr(freed_memory.gc, "collect", lambda: done.append("collect"))
        monkeypatch.setattr(freed_memory, "_TRIM_INTERVAL_S", 0)
        monkeypatch.setattr(freed_memory, "_own_bytes", lambda _: _next(each) * MIB)
        asyncio.run(asyncio.wait_for(freed_memory.return_small_blocks(), 10))
        return done

    return acts


def _next(sizes: Iterator[int]) -> int:
    """The next size. Raises OSError at the end, as for a system that does not tell."""
    for size in sizes:
        return size
    raise OSError


def test_a_heap_that_stays_is_left_alone(acts: Act) -> None:
    assert acts(60, 61, 62, 61, 62) == []


def test_little_growth_is_trimmed_without_a_collection(acts: Act) -> None:
    assert acts(60, (63, 61), 62, 63, (64, 62), (65, 63)) == ["trim"] * 3


def test_much_growth_since_the_last_collection_is_collected_first(acts: Act) -> None:
    assert acts(60, (69, 68), 70, (71, 70), (77, 61)) == [
        *("collect", "trim"),
        "trim",
        *("collect", "trim"),
    ]


def test_what_thousands_of_clients_leave_is_collected_until_it_has_gone(acts: Act) -> None:
    assert acts(60, (500, 500), (499, 300), (298, 90), 92) == ["collect", "trim"] * 3


async def test_little_is_received_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    transports = asyncio.selector_events._SelectorTransport  # type: ignore[attr-defined]
    monkeypatch.setattr(transports, "max_size", transports.max_size)  # and back
    freed_memory.receive_in_small_blocks()
    ours, theirs = socket.socketpair()
    sent, sizes = 300_000, list[int]()
    done = asyncio.Event()

    class Receiver(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))
            if sum(sizes) == sent:
                done.set()

    transport, _ = await asyncio.get_running_loop().create_connection(Receiver, sock=ours)
    with theirs:
        await asyncio.to_thread(theirs.sendall, bytes(sent))
        await asyncio.wait_for(done.wait(), 10)
    transport.abort()
    assert max(sizes) <= freed_memory.RECEIVED_BYTES
