"""hearth import, and a store of Ollama used in place."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.digest import Digest
from registry.formats.gguf import read_header
from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.gguf_files import (
    all_llama_tensors,
    gguf_file,
    llama_file,
    llama_metadata,
    projector_file,
    u16,
)
from tests.integration.cli_process import hearth, of_daemon

CHAT = "/v1/chat/completions"
CONFIG = b'{"model_format":"gguf","model_family":"hearth-echo","architecture":"amd64"}'


def ollama_store(root: Path, *names: str) -> None:
    """A store laid out exactly as Ollama writes it: modes, names and the form of manifests."""
    for name in names:
        parts = [
            ("application/vnd.docker.container.image.v1+json", CONFIG),
            ("application/vnd.ollama.image.model", echo_gguf(salt=name)),
            ("application/vnd.ollama.image.system", b"Be kind."),
        ]
        layers = []
        for kind, content in parts:
            digest = hashlib.sha256(content).hexdigest()
            write(root / "blobs" / f"sha256-{digest}", content)
            layers.append({"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)})
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": layers[0],
            "layers": layers[1:],
        }
        path = root / "manifests/registry.ollama.ai/library" / name / "latest"
        write(path, json.dumps(manifest).encode())


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in (path.parent, *path.parent.parents):
        if folder.stat().st_uid == os.getuid() and len(folder.parts) > 3:
            folder.chmod(0o755)
    path.write_bytes(content)
    path.chmod(0o644)


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def answers(daemon: RunningDaemon, model: str) -> bool:
    asked = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    with daemon.client() as http:
        return http.post(CHAT, json=asked).is_success


@pytest.fixture
def daemon(start_daemon: StartDaemon, tmp_path: Path) -> Iterator[RunningDaemon]:
    home = tmp_path / "user"
    home.mkdir()
    return start_daemon(env={"HOME": str(home)})


def imported(daemon: RunningDaemon, *args: str) -> list[dict[str, Any]]:
    ran = hearth(of_daemon(daemon), "import", *args, "--json")
    assert ran.returncode in (0, 1), ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_models_of_ollama_are_listed_and_taken_without_a_copy(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    root = tmp_path / "user" / ".ollama" / "models"
    ollama_store(root, "one", "two")
    before = snapshot(root)
    listed = hearth(of_daemon(daemon), "import", "ollama", "--list")
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["NAME", "one", "two"]
    assert "ready to import" in listed.stdout
    ran = hearth(of_daemon(daemon), "import", "ollama", "one")
    assert (ran.returncode, "imported 'one'" in ran.stdout) == (0, True), ran.stderr
    assert "copied" not in ran.stdout
    assert answers(daemon, "one")
    content = Digest.of(echo_gguf(salt="one")).file_name
    mine = daemon.home / "models" / "blobs" / content
    assert mine.stat().st_ino == (root / "blobs" / content).stat().st_ino or mine.exists()
    assert snapshot(root) == before
    *found, summary = imported(daemon, "ollama")
    states = {line["found"]["model"]: line["found"]["state"] for line in found if "found" in line}
    assert states == {"one": "present", "two": "new"}
    assert (summary["taken"], summary["copied_bytes"]) == (1, 0)


def test_the_hubs_cache_and_lm_studios_folder_become_models(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    cache, content = tmp_path / "hub", echo_gguf(salt="hub")
    folder = cache / "models--user--repo"
    write(folder / "blobs" / hashlib.sha256(content).hexdigest(), content)
    link = folder / "snapshots" / "abc" / "echo-Q4_0.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path("../../blobs") / hashlib.sha256(content).hexdigest())
    assert imported(daemon, "hf", "--path", str(cache))[-1]["taken"] == 1
    assert answers(daemon, "hf.co/user/repo:Q4_0")
    studio = tmp_path / "studio"
    write(studio / "pub" / "repo" / "echo.gguf", echo_gguf(salt="studio"))
    write(studio / "pub" / "bad" / "bad.gguf", b"no model")
    lines = imported(daemon, "lmstudio", "--path", str(studio))
    results = {
        x["imported"]["model"]: x["imported"] for x in lines if "model" in str(x.get("imported"))
    }
    assert results["pub/repo"]["imported"]
    assert "GGUF" in results["pub/bad"]["reason"]
    assert answers(daemon, "pub/repo")
    with daemon.client() as http:
        assert http.get("/api/du").json()["unused"] == 0


def test_projectors_beside_the_weights_are_taken_along(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    studio, content = tmp_path / "studio" / "pub", projector_file(width=64)
    write(studio / "seeing" / "m-Q8_0.gguf", llama_file())
    write(studio / "seeing" / "mmproj-m-F16.gguf", content)
    write(studio / "blind" / "m-Q4_0.gguf", echo_gguf(salt="blind"))
    write(studio / "blind" / "mmproj-m-F16.gguf", projector_file(kind="model"))
    ran = hearth(of_daemon(daemon), "import", "lmstudio", "--path", str(tmp_path / "studio"))
    assert ran.returncode == 0, ran.stderr
    assert "the projector was skipped: the file is not a projector but model" in ran.stdout
    kinds = {}
    for name, tag in (("seeing", "Q8_0"), ("blind", "Q4_0")):
        path = daemon.home.joinpath("models/manifests/registry.ollama.ai/pub", name, tag)
        kinds[name] = [
            Digest.parse(layer["digest"])
            for layer in json.loads(path.read_bytes())["layers"]
            if layer["mediaType"].endswith(".projector")
        ]
    assert kinds == {"seeing": [Digest.of(content)], "blind": []}
    with daemon.client() as http:
        assert http.get("/api/du").json()["unused"] == 0


def test_a_wrong_name_or_folder_is_told(daemon: RunningDaemon, tmp_path: Path) -> None:
    ollama_store(tmp_path / "store", "one")
    env = of_daemon(daemon)
    at = ("--path", str(tmp_path / "store"))
    unknown = hearth(env, "import", "ollama", "onee", *at)
    assert (unknown.returncode, "did you mean one?" in unknown.stderr) == (3, True)
    missing = hearth(env, "import", "lmstudio")
    assert (missing.returncode, "give it with --path" in missing.stderr) == (1, True)
    itself = hearth(env, "import", "ollama", "--path", str(daemon.home / "models"))
    assert "this folder is the model store itself" in itself.stderr
    assert hearth(env, "import", "gpt4all").returncode == 2


def test_another_model_of_the_same_name_is_not_replaced(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    ollama_store(tmp_path / "store", "echo")
    ran = hearth(of_daemon(daemon), "import", "ollama", "--path", str(tmp_path / "store"))
    assert (
        "another model echo is installed; to replace it, run `hearth rm echo` first" in ran.stdout
    )


def test_a_store_of_ollama_is_used_in_place_both_ways(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    root = tmp_path / "ollama" / "models"
    ollama_store(root, "one", "two")
    before = snapshot(root)
    daemon = start_daemon(names=(), env={"HEARTH_MODELS": str(root)})
    with daemon.client() as http:
        names = {item["name"] for item in http.get("/api/tags").json()["models"]}
        assert names >= {"one:latest", "two:latest"}
        assert http.post("/api/show", json={"model": "one"}).json()["system"] == "Be kind."
        assert answers(daemon, "one")
        body = {"model": "mine", "from": "one", "system": "Be brief.", "stream": False}
        assert http.post("/api/create", json=body).json() == {"status": "success"}
        assert http.post("/api/copy", json={"source": "two", "destination": "three"}).is_success
        assert http.request("DELETE", "/api/delete", json={"model": "two"}).is_success
        lines = http.post("/api/fsck", json={}).text.splitlines()
        assert json.loads(lines[-1])["findings"] == 0
    daemon.stop()
    after = snapshot(root)
    gone = "manifests/registry.ollama.ai/library/two/latest"
    assert {path: after.get(path) for path in before if path != gone} == {
        path: value for path, value in before.items() if path != gone
    }
    made = root / "manifests/registry.ollama.ai/library"
    mine = json.loads((made / "mine/latest").read_bytes())
    assert mine["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert (made / "three/latest").read_bytes() == before[gone][1]
    for layer in (mine["config"], *mine["layers"]):
        path = root / "blobs" / layer["digest"].replace(":", "-")
        assert path.stat().st_size == layer["size"]
        assert (path.stat().st_mode & 0o777) == (
            0o644 if str(path.relative_to(root)) in before else 0o600
        )
    assert not (made / "two").exists()


def test_a_model_in_parts_is_joined_where_a_copy_is_allowed(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    folder, tensors = tmp_path / "studio" / "pub" / "repo", all_llama_tensors()
    for number, part in enumerate((tensors[:1], tensors[1:])):
        keys = dict(llama_metadata()) if number == 0 else {}
        keys |= {"split.no": u16(number), "split.count": u16(2)}
        write(folder / f"m-Q4_0-0000{number + 1}-of-00002.gguf", gguf_file(keys, part))
    before = blob_names(daemon)
    at = ("lmstudio", "--path", str(tmp_path / "studio"))
    refused = imported(daemon, *at)
    told = next(line["imported"] for line in refused if "imported" in line)
    assert told["reason"].startswith("it is in parts; joining them writes about 77 KB")
    assert blob_names(daemon) == before
    assert imported(daemon, *at, "--copy")[-1]["taken"] == 1
    made = [path for path in blob_names(daemon) - before if path.read_bytes()[:4] == b"GGUF"]
    assert [len(read_header(path).tensors) for path in made] == [len(tensors)]
    again = hearth(of_daemon(daemon), "import", *at)
    assert (again.returncode, again.stdout) == (
        0,
        "nothing to do: 1 of 1 models are installed already\n",
    )


def blob_names(daemon: RunningDaemon) -> set[Path]:
    return set((daemon.home / "models" / "blobs").iterdir())
