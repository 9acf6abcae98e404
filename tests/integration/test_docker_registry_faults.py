"""Pulls from Debian's docker-registry over a connection that fails: what arrives is right, and only
what was lost comes again."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from registry.auth.credentials import Credentials
from registry.auth.tokens import RegistryAuthority
from registry.digest import Digest
from registry.hosts.http.client import HttpClient
from registry.hosts.oci_registry import OciHost, Repository
from registry.manifest import CONFIG_TYPE, MANIFEST_TYPE, MODEL_TYPE
from registry.names import Name
from registry.pull import ModelBuilder, PullState, pull
from registry.store import Store
from registry.transfer.download import DownloadOptions
from registry.transfer.fetcher import Fetcher
from registry.transfer.journal import chunk_size_for
from tests.conftest import StartDaemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import hearth, of_daemon
from tests.integration.docker_registry import docker_registry, needs_registry
from tests.integration.registry_front import Fault, Front, Span, front
from tests.unit.registry.conftest import no_build

pytestmark = needs_registry
CONFIG = b'{"model_format":"gguf"}'
WEIGHTS = echo_gguf(salt="faults") + random.Random(4).randbytes(6_000_000)
SIZE, DIGEST = len(WEIGHTS), Digest.of(WEIGHTS)
CHUNK = chunk_size_for(SIZE)
BREAKS = ("cut", "cut", "reset", "busy", "busy", "pause")
SEEDS = range(4)


@pytest.fixture(scope="module")
def registry_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry with the model t/m."""
    with docker_registry(tmp_path_factory.mktemp("registry")) as address:
        with httpx.Client(base_url=f"http://{address}/v2/t/m/", trust_env=False) as http:
            config, layer = _put(http, CONFIG_TYPE, CONFIG), _put(http, MODEL_TYPE, WEIGHTS)
            manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config}
            content = json.dumps({**manifest, "layers": [layer]})
            headers = {"Content-Type": MANIFEST_TYPE}
            answer = http.put("manifests/latest", content=content, headers=headers)
            assert answer.status_code == 201
        yield address


@pytest.fixture
def faulty(registry_address: str) -> Iterator[Front]:
    """What stands in front of the registry, without faults yet."""
    with front() as before:
        before.upstream = registry_address
        yield before


def _put(http: httpx.Client, kind: str, content: bytes) -> dict[str, object]:
    """Upload a blob at one go; gives its line of a manifest."""
    digest = str(Digest.of(content))
    url = httpx.URL(http.post("blobs/uploads/").headers["Location"])
    url = url.copy_merge_params({"digest": digest})
    headers = {"Content-Type": "application/octet-stream"}
    assert http.put(url, content=content, headers=headers).status_code == 201
    return {"mediaType": kind, "digest": digest, "size": len(content)}


async def pulled(faulty: Front, folder: Path) -> Store:
    """A store into which the model has been pulled, with next to no waits after faults."""
    store = Store.open(folder / "models")
    base = httpx.URL(f"http://{faulty.address}")
    async with HttpClient("hearth/test", stall_s=60.0) as web:
        tokens = RegistryAuthority(
            web, base, Credentials(folder / "auth.json", None).find, lambda _: None
        )
        name = Name.parse(f"{faulty.address}/t/m")
        host = OciHost(Repository(web, base, "t/m", tokens), name, "latest")
        fetcher = Fetcher(store, DownloadOptions(wait_scale=0.01))
        await pull(host, fetcher, PullState(), ModelBuilder(no_build))
    return store


def spans(faulty: Front) -> list[Span]:
    """The ranges of the weights that were sent."""
    faulty.await_quiet()
    return next(sent for path, sent in faulty.sent.items() if path.endswith(str(DIGEST)))


def chunks(span: Span) -> set[int]:
    """The chunks of which a range has bytes."""
    return set(range(span.start // CHUNK, -(-span.stop // CHUNK)))


def check_whole(store: Store, faulty: Front) -> None:
    """The weights are in the store as the registry has them."""
    assert len(store.read_blob(DIGEST, 1 << 26)) == SIZE
    assert [stored.fault for stored in store.models()] == [None]
    assert list((store.root / "tmp").iterdir()) == []
    assert not faulty.faults, "every fault has happened"


async def test_a_connection_without_faults_brings_every_byte_once(
    faulty: Front, tmp_path: Path
) -> None:
    store = await pulled(faulty, tmp_path)
    check_whole(store, faulty)
    store.close()
    assert sum(span.stop - span.start for span in spans(faulty)) == SIZE


@pytest.mark.parametrize("seed", SEEDS)
async def test_broken_connections_and_refusals_cost_the_chunks_that_were_cut(
    seed: int, faulty: Front, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(BREAKS, len(BREAKS))
    faulty.faults.extend(Fault(kind, chance.random()) for kind in kinds)
    store = await pulled(faulty, tmp_path)
    check_whole(store, faulty)
    store.close()
    times = Counter(index for span in spans(faulty) for index in chunks(span))
    again = {index for index, count in times.items() if count > 1}
    lost = set().union(*(chunks(span) for span in faulty.lost))
    assert again <= lost, "nothing comes again that had come whole"
    assert len(faulty.lost) == BREAKS.count("cut") + BREAKS.count("reset")


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_flipped_byte_is_found_and_mended_without_fetching_all_again(
    seed: int, faulty: Front, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(("flip", "cut", "busy"), 3)
    faulty.faults.extend(Fault(kind, chance.random()) for kind in kinds)
    store = await pulled(faulty, tmp_path)
    check_whole(store, faulty)
    store.close()
    again_bytes = sum(span.stop - span.start for span in spans(faulty)) - SIZE
    # Nothing tells which chunk is wrong: it is looked for from the front, an eighth at a time,
    # after the chunks at which a fault was seen.
    assert again_bytes <= faulty.flipped[0] + SIZE // 8 + (len(kinds) + 2) * CHUNK
    assert again_bytes >= CHUNK


def test_the_command_pulls_through_all_of_it(
    faulty: Front, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    kinds = (Fault("busy", retry_after="1"), Fault("cut"), Fault("flip", 0.1), Fault("reset"))
    faulty.faults.extend((*kinds, Fault("pause")))
    daemon = start_daemon(env={"HEARTH_OFFLINE": "0"})
    name, since_s = f"{faulty.address}/t/m", time.monotonic()
    ran = hearth(of_daemon(daemon), "pull", name)
    assert (ran.returncode, ran.stdout) == (0, f"pulled '{name}'\n"), ran.stderr
    assert time.monotonic() - since_s >= 1.0, "as long as the registry wanted to be left alone"
    answer = hearth(of_daemon(daemon), "run", name, "hello")
    assert answer.stdout == "hello\n", answer.stderr
    store = Store.open(daemon.home / "models", read_only=True)
    assert len(store.read_blob(DIGEST, 1 << 26)) == SIZE
    sent_bytes = sum(span.stop - span.start for span in spans(faulty))
    assert sent_bytes < 2 * SIZE
