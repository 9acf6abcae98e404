"""Push and pull against Debian's docker-registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from registry.hosts import oci_upload
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store
from tests.conftest import StartDaemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import hearth, of_daemon
from tests.integration.docker_registry import (
    PASSWORD,
    USER,
    basic_auth,
    docker_registry,
    needs_registry,
)

pytestmark = needs_registry
SIZE = 5_000_000


def install(store: Store, name: Name) -> Manifest:
    weights = echo_gguf(salt="real") + bytes(range(256)) * (SIZE // 256)
    layers = []
    for kind, content in ((CONFIG_TYPE, b'{"model_format":"gguf"}'), (MODEL_TYPE, weights)):
        with store.blob_writer() as writer:
            writer.write(content)
            layers.append(Descriptor(kind, *writer.commit()))
    manifest = Manifest(layers[0], tuple(layers[1:]))
    store.put_manifest(name, manifest)
    return manifest


@pytest.mark.parametrize("asks", [False, True])
def test_a_model_goes_to_the_registry_and_comes_back(
    asks: bool, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    home, folder = tmp_path / "home", tmp_path / "registry"
    folder.mkdir()
    with docker_registry(folder, basic_auth(folder) if asks else None) as address:
        name = Name.parse(f"{address}/team/model:v1")
        store = Store.open(home / "models")
        manifest = install(store, name)
        identity = store.get(name).digest
        store.close()
        env = of_daemon(start_daemon(home=home, names=(), env={"HEARTH_OFFLINE": "0"}))
        if asks:
            refused = hearth(env, "push", name.short)
            assert "hearth login" in refused.stderr
            args = ("login", address, "-u", USER, "--password-stdin")
            wrong = hearth(env, *args, stdin=b"wrong")
            assert wrong.stderr == f"Error: {address} rejected the password of {USER!r}\n"
            assert hearth(env, *args, stdin=PASSWORD.encode()).returncode == 0
        pushed = hearth(env, "push", name.short)
        assert (pushed.returncode, pushed.stdout) == (0, f"pushed '{name.short}'\n"), pushed.stderr
        assert hearth(env, "rm", name.short).returncode == 0
        pulled = hearth(env, "pull", name.short, "--json")
        assert pulled.returncode == 0, pulled.stderr
        lines = [json.loads(line) for line in pulled.stdout.splitlines()]
        assert {line["digest"] for line in lines if "digest" in line} == {
            str(layer.digest) for layer in manifest.blobs
        }
        other = hearth(env, "pull", f"{address}/team/model:v2")
        assert f"{address} has no model team/model:v2; it has v1\n" in other.stderr
        other = hearth(env, "pull", f"{address}/team/none:v2")
        assert "has no model team/none:v2; check the name and the tag\n" in other.stderr
        answer = hearth(env, "run", name.short, "hello")
        assert answer.stdout == "hello\n", answer.stderr
    again = Store.open(home / "models", read_only=True)
    assert again.get(name).digest == identity
    assert [len(again.read_blob(layer.digest, layer.size_bytes)) for layer in manifest.blobs]


async def test_blobs_go_in_parts_and_are_mounted_from_other_repositories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from registry.auth.credentials import Credentials
    from registry.auth.tokens import RegistryAuthority
    from registry.hosts.http.client import HttpClient
    from registry.hosts.oci_registry import Repository, base_url
    from registry.pull import PullState
    from registry.push import push
    from registry.transfer.rate import RateLimit

    monkeypatch.setattr(oci_upload, "PART_BYTES", 1_000_000)
    (tmp_path / "registry").mkdir()
    store = Store.open(tmp_path / "models")
    with docker_registry(tmp_path / "registry") as address:
        name = Name.parse(f"{address}/team/model:v1")
        install(store, name)
        base = base_url(address, plain=False)
        async with HttpClient("hearth/test") as web:
            tokens = RegistryAuthority(
                web, base, Credentials(tmp_path / "a.json", None).find, lambda _: None
            )
            repository = Repository(web, base, "team/model", tokens)
            other = replace(name, tag="v2")
            store.copy(name, other)
            await push(store, name, repository, RateLimit(None), PullState())
            await push(store, other, repository, RateLimit(None), PullState())
            assert sorted(await repository.tags()) == ["v1", "v2"]
    store.close()
