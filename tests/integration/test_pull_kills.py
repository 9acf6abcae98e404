"""Many kills of a daemon in the middle of a pull: `make slow`."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import httpx
import pytest

from registry.digest import Digest
from registry.hosts.host import RemoteFile
from registry.store import Store
from registry.transfer.fetcher import _plan
from tests.conftest import StartDaemon
from tests.echo_models import echo_gguf
from tests.registry_server import FakeRegistry, fake_registry

SIZE = 24_000_000
KILLS = 300


def kept_bytes(store: Store, content: bytes) -> int:
    """What is in the store of a content, whole or in part."""
    digest = Digest.of(content)
    if store.has_blob(digest):
        return len(store.read_blob(digest, 1 << 26))
    source: object = None
    file = RemoteFile("x", len(content), digest, str(digest), source)  # type: ignore[arg-type]
    return store.partial_bytes(_plan(file))


def check(home: Path, name: str, content: bytes) -> int:
    """The store after a kill is whole; gives what it has of content."""
    store = Store.open(home / "models")
    try:
        for stored in store.models():
            assert stored.fault is None
            for layer in stored.manifest.blobs:
                store.read_blob(layer.digest, layer.size_bytes)
        assert "echo" in [stored.name.short for stored in store.models()]
        return kept_bytes(store, content)
    finally:
        store.close()


def kill_once(
    start_daemon: StartDaemon, remote: FakeRegistry, home: Path, at_bytes: int, content: bytes
) -> int:
    """Pull until at_bytes were sent, kill, pull again; gives the bytes fetched twice."""
    victim = start_daemon(env={"HEARTH_OFFLINE": "0"}, home=home)
    killed = threading.Event()

    def kill(served_bytes: int) -> None:
        if served_bytes >= at_bytes and not killed.is_set():
            killed.set()
            victim.process.kill()

    remote.served_bytes, remote.before_part = 0, kill
    name = f"{remote.address}/t/m"
    with victim.client() as http, pytest.raises(httpx.TransportError):
        http.post("/api/pull", json={"model": name})
    victim.wait()
    remote.await_quiet()
    kept = check(home, name, content)
    remote.served_bytes, remote.before_part = 0, None
    again = start_daemon(env={"HEARTH_OFFLINE": "0"}, home=home, names=())
    with again.client() as http:
        answer = http.post("/api/pull", json={"model": name, "stream": False})
    assert answer.json() == {"status": "success"}
    again.stop()
    assert check(home, name, content) == len(content)
    return remote.served_bytes - (len(content) - kept)


@pytest.mark.slow
def test_no_kill_leaves_a_damaged_store_or_fetches_kept_bytes_again(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    choice = random.Random(1)
    content = echo_gguf() + choice.randbytes(SIZE)
    with fake_registry() as remote:
        remote.add_model("t/m", content)
        for number in range(KILLS):
            at_bytes = choice.randrange(SIZE * 9 // 10)
            twice = kill_once(start_daemon, remote, tmp_path / f"h{number}", at_bytes, content)
            assert twice <= SIZE * 0.05, (number, at_bytes)
