from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from registry.auth.credentials import Credential
from registry.digest import Digest
from registry.errors import BlobDamaged, RemoteDenied, RemoteUnreachable
from registry.hosts import oci_upload
from registry.hosts.http.client import HttpClient
from registry.hosts.oci_upload import Upload, put_manifest
from registry.manifest import MANIFEST_TYPE, MODEL_TYPE, Descriptor
from registry.transfer.download import BlobProgress
from tests.registry_server import PASSWORD, USER, FakeRegistry, fake_registry
from tests.unit.registry.conftest import repository

CONTENT = random.Random(7).randbytes(350_000)
LAYER = Descriptor(MODEL_TYPE, Digest.of(CONTENT), len(CONTENT))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_upload, "PART_BYTES", 100_000)


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    (tmp_path / "blob").write_bytes(CONTENT)
    return tmp_path / "blob"


async def send(
    remote: FakeRegistry,
    path: Path,
    layer: Descriptor = LAYER,
    credential: Credential | None = None,
) -> BlobProgress:
    progress = BlobProgress("x", layer.digest, layer.size_bytes)
    async with HttpClient("hearth/test", stall_s=5.0) as web:
        target = repository(web, remote, "team/m", credential, path.parent)
        await Upload(target, layer, path, progress, wait_scale=0.0).run()
    return progress


async def test_a_blob_goes_in_parts_and_is_counted(remote: FakeRegistry, blob: Path) -> None:
    progress = await send(remote, blob)
    assert remote.blobs[str(LAYER.digest)] == CONTENT
    assert [seen.method for seen in remote.seen] == ["HEAD", "POST", *["PATCH"] * 4, "PUT"]
    assert (progress.completed_bytes, progress.done) == (len(CONTENT), True)


async def test_a_blob_that_is_there_is_not_sent(remote: FakeRegistry, blob: Path) -> None:
    remote.add_blob(CONTENT)
    assert (await send(remote, blob)).done
    assert [seen.method for seen in remote.seen] == ["HEAD"]


async def test_after_a_fault_it_goes_on_from_where_the_registry_stands(
    remote: FakeRegistry, blob: Path
) -> None:
    remote.faults.extend([None, "503", None, "503", "503"])
    await send(remote, blob)
    assert remote.blobs[str(LAYER.digest)] == CONTENT
    ranges = [s.headers["Content-Range"] for s in remote.seen if s.method == "PATCH"]
    assert ranges.count("0-99999") == 1


async def test_a_registry_that_keeps_failing_is_given_up(remote: FakeRegistry, blob: Path) -> None:
    remote.faults.extend(["503"] * 30)
    with pytest.raises(RemoteUnreachable, match="503"):
        await send(remote, blob)


async def test_a_blob_of_another_repository_is_mounted(remote: FakeRegistry, blob: Path) -> None:
    remote.add_blob(CONTENT)
    layer = Descriptor(MODEL_TYPE, LAYER.digest, LAYER.size_bytes, source="library/base")
    remote.special[f"/v2/team/m/blobs/{LAYER.digest}"] = lambda handler: handler.reply(404)
    assert (await send(remote, blob, layer)).done
    (post,) = (seen for seen in remote.seen if seen.method == "POST")
    assert "from=library%2Fbase" in post.path
    assert "PATCH" not in {seen.method for seen in remote.seen}


async def test_no_credential_goes_to_an_upload_on_another_origin(
    remote: FakeRegistry, blob: Path
) -> None:
    with fake_registry() as elsewhere:
        remote.auth = "basic"
        elsewhere.uploads["u1"] = bytearray()
        target = f"{elsewhere.url}/v2/team/m/blobs/uploads/u1"
        remote.special["/v2/team/m/blobs/uploads/"] = lambda handler: handler.reply(
            202, b"", Location=target
        )
        await send(remote, blob, credential=Credential(USER, PASSWORD))
        assert elsewhere.blobs[str(LAYER.digest)] == CONTENT
        assert all("authorization" not in map(str.lower, s.headers) for s in elsewhere.seen)


async def test_a_file_shorter_than_its_manifest_says_is_not_sent_as_whole(
    remote: FakeRegistry, blob: Path
) -> None:
    os.truncate(blob, len(CONTENT) - 1)
    with pytest.raises(BlobDamaged, match="shorter"):
        await send(remote, blob)
    assert remote.blobs == {}


async def test_a_refused_push_names_the_login(remote: FakeRegistry, blob: Path) -> None:
    remote.auth = "token"
    with pytest.raises(RemoteDenied, match="hearth login"):
        await send(remote, blob)


async def test_a_manifest_gets_its_tag(remote: FakeRegistry, tmp_path: Path) -> None:
    async with HttpClient("hearth/test") as web:
        target = repository(web, remote, "team/m", None, tmp_path)
        await put_manifest(target, "v1", b"{}", MANIFEST_TYPE)
        assert await target.tags() == ["v1"]
    assert remote.manifests["team/m:v1"] == (MANIFEST_TYPE, b"{}")
