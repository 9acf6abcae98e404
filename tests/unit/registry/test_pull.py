from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from registry.auth.credentials import Credential
from registry.digest import Digest
from registry.errors import (
    InvalidManifest,
    RemoteDenied,
    RemoteMissing,
    RemoteRefused,
    RemoteUnreachable,
    StoreFull,
)
from registry.manifest import CONFIG_TYPE, MAX_MANIFEST_BYTES, MODEL_TYPE
from registry.names import Name
from registry.pull import PullState
from registry.store import Store
from registry.transfer import fetcher as fetching
from registry.transfer.download import BlobProgress
from tests.registry_server import PASSWORD, USER, FakeRegistry, Handler, fake_registry
from tests.unit.registry.conftest import Pull

CONTENT = random.Random(5).randbytes(3_000_001)
FAULTS = ("truncated", "reset", "429", "500", "503", "wrong range", "wrong bytes", "whole")


def installed(store: Store, remote: FakeRegistry) -> bytes:
    """The content of the one model, verified."""
    stored = store.get(Name.parse(f"{remote.address}/t/m"))
    assert stored.fault is None
    (layer,) = stored.manifest.layers
    store.read_blob(layer.digest, layer.size_bytes)
    return store.blob_path(layer.digest).read_bytes()


def left_over(store: Store) -> list[str]:
    return sorted(path.name for path in (store.root / "tmp").iterdir())


async def test_a_model_arrives_whole_with_the_manifest_as_it_was(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    manifest = remote.add_model("t/m", CONTENT)
    state = await pull_model()
    assert installed(store, remote) == CONTENT
    stored = store.get(Name.parse(f"{remote.address}/t/m"))
    assert stored.digest == Digest.of(manifest)
    words = [step for step in state.steps if isinstance(step, str)]
    assert words == [
        "pulling manifest",
        "verifying sha256 digest",
        "writing manifest",
        "success",
    ]
    assert left_over(store) == []
    assert remote.served_bytes == len(CONTENT) + 2


async def test_what_is_in_the_store_is_not_fetched_again(
    remote: FakeRegistry, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    await pull_model()
    before = remote.served_bytes
    await pull_model()
    assert remote.served_bytes == before


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_the_server_is_survived(
    fault: str, remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    remote.faults.extend([None, fault, None, fault])
    await pull_model()
    assert installed(store, remote) == CONTENT


@pytest.mark.parametrize("seed", range(12))
async def test_random_faults_are_survived_and_fetch_little_again(
    seed: int, remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    choice = random.Random(seed)
    remote.add_model("t/m", CONTENT)
    kinds = (*FAULTS[:-2], None, None, None)
    for _ in range(5):
        remote.faults.extend([None, *(choice.choice(kinds) for _ in range(3))])
    await pull_model()
    assert installed(store, remote) == CONTENT
    assert remote.served_bytes < 2 * len(CONTENT)


async def test_a_server_without_ranges_is_read_from_the_start(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    remote.faults.extend(["whole"] * 20)
    await pull_model()
    assert installed(store, remote) == CONTENT


async def test_one_bad_chunk_is_mended_without_throwing_the_rest_away(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    remote.faults.extend([None, None, "wrong bytes"])
    await pull_model()
    assert installed(store, remote) == CONTENT
    assert remote.served_bytes <= 2 * len(CONTENT) + 4


async def test_a_server_that_insists_on_wrong_bytes_is_refused(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    digest = f"sha256:{Digest.of(CONTENT).hex}"
    remote.blobs[digest] = CONTENT[:-1] + b"x"
    with pytest.raises(RemoteRefused, match="digest mismatch"):
        await pull_model()
    assert store.names() == []
    assert not store.has_blob(Digest.of(CONTENT))
    assert left_over(store) == []


async def test_a_server_that_keeps_failing_is_given_up_and_the_next_pull_goes_on(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    remote.faults.extend([None, None, None, None, *["503"] * 60])
    with pytest.raises(RemoteUnreachable, match="pull again"):
        await pull_model(streams=1)
    assert store.names() == []
    remote.await_quiet()
    kept, remote.served_bytes = remote.served_bytes, 0
    remote.faults.clear()
    state = await pull_model()
    assert installed(store, remote) == CONTENT
    assert kept > 0
    assert remote.served_bytes <= len(CONTENT) - kept + 65536 + 2
    assert [s for s in state.steps if isinstance(s, BlobProgress) and s.resumed_bytes]


async def test_a_kept_part_that_was_damaged_on_the_disk_is_fetched_again(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    remote.faults.extend([None, None, None, None, *["503"] * 60])
    with pytest.raises(RemoteUnreachable):
        await pull_model(streams=1)
    (partial,) = (p for p in (store.root / "tmp").iterdir() if not p.name.endswith("journal"))
    with partial.open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    remote.faults.clear()
    await pull_model()
    assert installed(store, remote) == CONTENT


async def test_a_manifest_is_found_by_its_digest_and_must_have_it(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    manifest = remote.add_model("t/m", CONTENT[:100])
    await pull_model(reference=str(Digest.of(manifest)))
    assert installed(store, remote) == CONTENT[:100]
    wrong = str(Digest.of(b"another"))
    remote.manifests[f"t/m:{wrong}"] = remote.manifests["t/m:latest"]
    with pytest.raises(RemoteRefused, match="as expected"):
        await pull_model(reference=wrong)


async def test_a_missing_model_is_said_to_be_missing(pull_model: Pull) -> None:
    with pytest.raises(RemoteMissing, match="has no model t/m:latest"):
        await pull_model()


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:../../../../etc/passwd",
        "sha256:" + "a" * 63,
        "sha256:" + "A" * 64,
        "sha512:" + "a" * 128,
        "/etc/passwd",
        "sha256-" + "a" * 64,
        "md5:" + "a" * 32,
    ],
)
async def test_tricks_with_digests_are_refused_before_anything_is_asked_for(
    digest: str, remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    config = {"mediaType": CONFIG_TYPE, "digest": remote.add_blob(b"{}"), "size": 2}
    layer = {"mediaType": MODEL_TYPE, "digest": digest, "size": 10}
    remote.add_manifest("t/m", {"config": config, "layers": [layer]})
    with pytest.raises(InvalidManifest):
        await pull_model()
    assert remote.requests("/blobs/") == []
    assert left_over(store) == []


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("a container", {"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip"}),
        ("no type", {"mediaType": ""}),
        ("a negative size", {"size": -1}),
        ("a size beyond all disks", {"size": 2**63}),
        ("a size in words", {"size": "10"}),
    ],
)
async def test_layers_that_are_no_parts_of_a_model_are_refused(
    kind: str, fields: dict[str, object], remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    config = {"mediaType": CONFIG_TYPE, "digest": remote.add_blob(b"{}"), "size": 2}
    layer = {"mediaType": MODEL_TYPE, "digest": remote.add_blob(b"abc"), "size": 3, **fields}
    remote.add_manifest("t/m", {"config": config, "layers": [layer]})
    with pytest.raises(InvalidManifest, match="layer"):
        await pull_model()
    assert store.names() == [], kind


async def test_a_list_of_images_is_refused_by_name(remote: FakeRegistry, pull_model: Pull) -> None:
    value = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
    remote.manifests["t/m:latest"] = (str(value["mediaType"]), json.dumps(value).encode())
    with pytest.raises(InvalidManifest, match="image index"):
        await pull_model()


async def test_an_endless_manifest_is_cut_off(remote: FakeRegistry, pull_model: Pull) -> None:
    remote.manifests["t/m:latest"] = ("application/json", b" " * (MAX_MANIFEST_BYTES + 100))
    with pytest.raises(RemoteRefused, match="more than"):
        await pull_model()


async def test_compressed_answers_are_refused_unread(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    remote.faults.append("gzip")
    with pytest.raises(RemoteRefused, match="compressed"):
        await pull_model()
    assert store.names() == []


async def test_a_wrong_size_in_the_manifest_installs_nothing(
    remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    config = {"mediaType": CONFIG_TYPE, "digest": remote.add_blob(b"{}"), "size": 2}
    layer = {"mediaType": MODEL_TYPE, "digest": remote.add_blob(b"abcdef"), "size": 3}
    remote.add_manifest("t/m", {"config": config, "layers": [layer]})
    with pytest.raises(RemoteRefused, match="digest mismatch"):
        await pull_model()
    assert store.names() == []


@pytest.mark.parametrize("auth", ["basic", "token"])
async def test_credentials_are_shown_when_they_are_asked_for(
    auth: str, remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.auth = auth
    remote.add_model("t/m", CONTENT)
    await pull_model(credential=Credential(USER, PASSWORD))
    assert installed(store, remote) == CONTENT
    assert len(remote.requests("/token")) == (auth == "token")


@pytest.mark.parametrize("auth", ["basic", "token"])
async def test_missing_and_wrong_credentials_are_told_apart_from_faults(
    auth: str, remote: FakeRegistry, pull_model: Pull
) -> None:
    remote.auth = auth
    with pytest.raises(RemoteDenied, match="hearth login"):
        await pull_model()
    with pytest.raises(RemoteDenied):
        await pull_model(credential=Credential(USER, "wrong"))


async def test_a_token_service_elsewhere_gets_no_request_at_all(
    remote: FakeRegistry, pull_model: Pull
) -> None:
    with fake_registry() as thief:
        remote.auth, remote.realm = "token", f"{thief.url}/token"
        with pytest.raises(RemoteRefused, match="another origin"):
            await pull_model(credential=Credential(USER, PASSWORD))
        assert thief.seen == []


@pytest.mark.parametrize("auth", ["basic", "token"])
async def test_no_credential_follows_a_redirect_to_another_origin(
    auth: str, remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    with fake_registry() as mirror:
        remote.auth = auth
        remote.add_model("t/m", CONTENT)
        mirror.blobs = remote.blobs
        digest = str(Digest.of(CONTENT))
        target = f"{mirror.url}/v2/cdn/blobs/{digest}"
        remote.special[f"/v2/t/m/blobs/{digest}"] = lambda handler: handler.reply(
            307, b"", Location=target, Set_Cookie="session=canary"
        )
        await pull_model(credential=Credential(USER, PASSWORD))
        assert installed(store, remote) == CONTENT
        assert len(mirror.seen) > 0
        names = {name.lower() for seen in mirror.seen for name in seen.headers}
        assert names.isdisjoint({"authorization", "cookie", "proxy-authorization"})


async def test_a_circle_of_redirects_ends(remote: FakeRegistry, pull_model: Pull) -> None:
    here = "/v2/t/m/manifests/latest"

    def circle(handler: Handler) -> None:
        handler.reply(302, b"", Location=here)

    remote.special[here] = circle
    with pytest.raises(RemoteRefused, match="redirects more than"):
        await pull_model()
    assert len(remote.seen) < 12


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("file:///etc/passwd", "neither https nor http"),
        ("ftp://127.0.0.1/x", "neither https nor http"),
        ("http://registry.example.com/x", "plain HTTP"),
        ("http://user:pass@127.0.0.1:1/x", "password"),
    ],
)
async def test_redirects_to_other_schemes_are_refused(
    target: str, reason: str, remote: FakeRegistry, pull_model: Pull
) -> None:
    remote.special["/v2/t/m/manifests/latest"] = lambda handler: handler.reply(
        302, b"", Location=target
    )
    with pytest.raises(RemoteRefused, match=reason):
        await pull_model()


async def test_a_model_that_does_not_fit_is_refused_before_a_byte_is_fetched(
    remote: FakeRegistry, store: Store, pull_model: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.add_model("t/m", CONTENT)
    monkeypatch.setattr("registry.atomic.free_bytes", lambda _: len(CONTENT) - 1)
    with pytest.raises(StoreFull) as caught:
        await pull_model()
    assert caught.value.needed_bytes == len(CONTENT) + 2
    assert remote.served_bytes == 0
    assert store.names() == []


async def test_a_disk_that_fills_up_keeps_what_is_good_and_says_what_is_missing(
    remote: FakeRegistry, store: Store, pull_model: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import os

    from registry.transfer import partial as module

    remote.add_model("t/m", CONTENT)
    real, calls = os.pwrite, 0

    def pwrite(descriptor: int, content: memoryview, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content, offset)

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "pwrite", pwrite)
        with pytest.raises(StoreFull) as caught:
            await pull_model()
    assert 0 < caught.value.needed_bytes < len(CONTENT) + 2
    assert store.names() == []
    remote.await_quiet()
    remote.served_bytes = 0
    await pull_model()
    assert installed(store, remote) == CONTENT
    assert remote.served_bytes < len(CONTENT) - 10 * 65536


async def test_two_pulls_of_one_content_fetch_it_once(
    remote: FakeRegistry, store: Store, tmp_path: Path
) -> None:
    import asyncio

    from registry.hosts.http.client import HttpClient
    from tests.unit.registry.conftest import repository

    remote.add_model("t/m", CONTENT)
    fetcher = fetching.Fetcher(store)
    async with HttpClient("hearth/test") as web:
        source = repository(web, remote, "t/m", None, tmp_path)
        manifest_layers = json.loads(remote.manifests["t/m:latest"][1])["layers"]
        assert len(manifest_layers) == 1
        from registry.manifest import Descriptor

        layer = Descriptor(MODEL_TYPE, Digest.of(CONTENT), len(CONTENT))
        shown = [BlobProgress("x", layer.digest, layer.size_bytes) for _ in range(5)]
        await asyncio.gather(*(fetcher.fetch(source.blob(layer), each) for each in shown))
    assert remote.served_bytes == len(CONTENT)
    assert all(each.done and each.completed_bytes == len(CONTENT) for each in shown)


def test_a_fresh_state_shows_nothing() -> None:
    assert PullState().steps == []
