"""Processes of a model on several machines are connected only where both have the key."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from runner.worker.rank_network import accepted, connected, listening, new_key
from runner.worker.ranks import FirstProcess, send_file

LIMIT_S = 30.0


class Waiting:
    """A process that waits for the first one."""

    def __init__(self, key: str, limit_s: float = LIMIT_S) -> None:
        self.server = listening("127.0.0.1")
        self.address: tuple[str, int] = self.server.getsockname()
        self.connection: Connection | None = None
        self.error: OSError | None = None
        self._thread = threading.Thread(target=self._wait, args=(key, limit_s), daemon=True)
        self._thread.start()

    def _wait(self, key: str, limit_s: float) -> None:
        try:
            self.connection = accepted(self.server, key, limit_s)
        except OSError as error:
            self.error = error

    def join(self) -> Connection | None:
        """What it has, in the end."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        return self.connection

    def close(self) -> None:
        """Nobody listens any more."""
        self.server.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def key() -> str:
    return new_key()


@pytest.fixture
def waiting(key: str) -> Iterator[Waiting]:
    found = Waiting(key)
    yield found
    found.close()


def test_both_have_the_key_and_messages_pass(waiting: Waiting, key: str) -> None:
    with connected(waiting.address, key) as first:
        other = waiting.join()
        assert other is not None
        first.send_bytes(b"a step")
        assert other.recv_bytes() == b"a step"
        other.send_bytes(b"")
        assert first.recv_bytes() == b""
        with socket.socket(fileno=socket.dup(first.fileno())) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_another_key_is_turned_away_and_the_right_one_is_still_taken(
    waiting: Waiting, key: str
) -> None:
    with pytest.raises((OSError, EOFError)):
        connected(waiting.address, new_key())
    with connected(waiting.address, key):
        assert waiting.join() is not None


def test_one_who_sends_back_what_it_gets_is_turned_away(waiting: Waiting, key: str) -> None:
    with socket.create_connection(waiting.address) as mirror:
        mirror.settimeout(LIMIT_S)
        while data := mirror.recv(4096):
            mirror.sendall(data)
    with connected(waiting.address, key):
        assert waiting.join() is not None


def test_the_first_process_does_not_speak_to_a_stranger(key: str) -> None:
    stranger = Waiting(new_key(), 5.0)
    with pytest.raises((OSError, EOFError)):
        connected(stranger.address, key)
    assert stranger.join() is None
    stranger.close()


def test_nobody_comes(key: str) -> None:
    alone = Waiting(key, 0.05)
    assert alone.join() is None
    assert isinstance(alone.error, TimeoutError)
    alone.close()


def test_a_file_comes_with_a_message(waiting: Waiting, key: str, tmp_path: Path) -> None:
    (tmp_path / "adapter.gguf").write_bytes(b"weights" * 1000)
    with connected(waiting.address, key) as first:
        other = waiting.join()
        assert other is not None
        leader = FirstProcess(other, far=True)
        with (tmp_path / "adapter.gguf").open("rb") as file:
            first.send_bytes(b"load")
            send_file(first, file, far=True)
        assert leader.receive() == b"load"
        with leader.receive_file() as received:
            path = Path(f"/proc/self/fd/{received.fileno()}")
            assert path.read_bytes() == b"weights" * 1000
