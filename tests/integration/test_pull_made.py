"""Pulls of models that are made of several files: the parts of a GGUF, safetensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from registry.formats.gguf import GgufHeader, read_header
from tests.checkpoint_files import CONFIG, shapes, tokenizer
from tests.conformance.convert.weights import weight, write_safetensors
from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.gguf_files import projector_file
from tests.hub_server import COMMIT, Hub, hub_environment, hub_server
from tests.integration.test_create_convert import started_job, temporary
from tests.registry_server import Answer, fake_registry
from tests.split_files import parts_of

EMBER = Path(__file__).parents[2] / "registry" / "builtin" / "ember" / "ember.gguf"
REPO = "someone/tiny"
STEM = "tiny-Q8_0"
PARTS = parts_of(EMBER, 3, STEM)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as hub:
        yield hub


@pytest.fixture
def daemon(start_daemon: StartDaemon, hub: Hub, tmp_path: Path) -> RunningDaemon:
    return start_daemon(env=hub_environment(hub.server.url, tmp_path))


def pull(daemon: RunningDaemon, name: str) -> list[dict[str, Any]]:
    with daemon.client() as http:
        response = http.post("/api/pull", json={"model": name})
    return [json.loads(line) for line in response.iter_lines() if line]


def statuses(lines: list[dict[str, Any]]) -> list[str]:
    """Each status once, in order."""
    return list(dict.fromkeys(line["status"] for line in lines if "status" in line))


def blobs(daemon: RunningDaemon) -> set[str]:
    return {path.name for path in (daemon.home / "models" / "blobs").iterdir()}


def redirect_to(target: str) -> Answer:
    return lambda handler: handler.reply(302, b"", Location=target)


def header_of(daemon: RunningDaemon, name: str) -> GgufHeader:
    with daemon.client() as http:
        shown = http.post("/api/show", json={"model": name}).json()
    path = shown["modelfile"].partition("\nFROM ")[2].partition("\n")[0]
    return read_header(Path(path))


def test_the_parts_of_a_model_are_joined_and_removed(daemon: RunningDaemon, hub: Hub) -> None:
    hub.add(REPO, {f"Q8_0/{name}": data for name, data in PARTS.items()})
    hub.add(REPO, {"mmproj-tiny-F16.gguf": projector_file(width=4)})
    before = blobs(daemon)
    lines = pull(daemon, f"hf.co/{REPO}:Q8_0")
    assert lines[-1] == {"status": "success", "model": f"hf.co/{REPO}:Q8_0"}
    assert statuses(lines) == [
        "pulling manifest",
        "with the multimodal projector mmproj-tiny-F16.gguf (1.8 KB)",
        *(f"pulling {name}" for name in PARTS),
        "pulling mmproj-tiny-F16.gguf",
        "verifying sha256 digest",
        "merging the parts",
        "verifying",
        "mmproj-tiny-F16.gguf was skipped: the projector produces embeddings of 4 values, but "
        "the model's"
        f" have {read_header(EMBER).embedding_length}: it was made for another model",
        "writing manifest",
        "success",
    ]
    assert len(blobs(daemon) - before) == 1  # a config: the joined model is ember, which is there
    asked = {"prompt": "hi", "stream": False, "options": {"temperature": 0, "num_predict": 4}}
    with daemon.client(120.0) as http:
        body = {"model": f"hf.co/{REPO}:Q8_0", **asked}
        assert http.post("/api/generate", json=body).json()["eval_count"] > 0


def test_a_joined_model_that_is_there_is_not_fetched_again(daemon: RunningDaemon, hub: Hub) -> None:
    hub.add(REPO, PARTS)
    pull(daemon, f"hf.co/{REPO}:Q8_0")
    fetched = hub.mirror.served_bytes
    assert fetched == sum(len(data) for data in PARTS.values())
    assert statuses(pull(daemon, f"hf.co/{REPO}:Q8_0")) == ["pulling manifest", "success"]
    assert hub.mirror.served_bytes == fetched


def test_parts_in_the_users_cache_are_joined_and_not_fetched(
    daemon: RunningDaemon, hub: Hub, tmp_path: Path
) -> None:
    hub.add(REPO, PARTS)
    folder = tmp_path / "hf" / "hub" / f"models--{REPO.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    (folder / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name, data in PARTS.items():
        kept = folder / "blobs" / hashlib.sha256(data).hexdigest()
        kept.write_bytes(data)
        (snapshot / name).symlink_to(kept)
    assert pull(daemon, f"hf.co/{REPO}")[-1]["status"] == "success"
    assert hub.mirror.seen == []
    for name, data in PARTS.items():
        kept = (snapshot / name).resolve()
        assert (kept.read_bytes(), kept.stat().st_nlink) == (data, 1)


def test_parts_that_are_no_model_are_told_and_leave_nothing(
    daemon: RunningDaemon, hub: Hub
) -> None:
    first, second, third = PARTS
    hub.add(REPO, {first: PARTS[first], second: PARTS[third], third: PARTS[third]})
    before = blobs(daemon)
    last = pull(daemon, f"hf.co/{REPO}:Q8_0")[-1]
    assert "part 2 of 3 is missing" in last["error"]
    assert blobs(daemon) == before


def test_a_part_that_the_hub_lacks_is_told_before_anything_is_fetched(
    daemon: RunningDaemon, hub: Hub
) -> None:
    hub.add(REPO, {name: PARTS[name] for name in list(PARTS)[:2]})
    assert "no complete GGUF" in pull(daemon, f"hf.co/{REPO}:Q8_0")[-1]["error"]
    assert hub.mirror.seen == []


def test_the_parts_behind_an_https_address_are_joined(daemon: RunningDaemon) -> None:
    with fake_registry() as server:
        for name, data in PARTS.items():
            digest = server.add_blob(data)
            server.special[f"/files/{name}"] = redirect_to(f"{server.url}/v2/x/blobs/{digest}")
        lines = pull(daemon, f"{server.url}/files/{list(PARTS)[1]}")
        assert lines[-1] == {"status": "success", "model": f"{server.address}/files/{STEM}"}
        assert f"pulling {list(PARTS)[2]}" in statuses(lines)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a small Llama in two shards."""
    return checkpoint_files(tmp_path_factory.mktemp("checkpoint"))


def checkpoint_files(folder: Path) -> dict[str, bytes]:
    """The files of a small Llama in two shards, written to a folder too."""
    tensors = {name: weight("llama", name, shape) for name, shape in shapes().items()}
    names, files = sorted(tensors), {}
    for number, part in enumerate((names[:9], names[9:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_safetensors(folder / file, {name: tensors[name] for name in part})
        files |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": files}
    values = {"config.json": CONFIG, "tokenizer.json": tokenizer()}
    values |= {"model.safetensors.index.json": index, "tokenizer_config.json": {}}
    for name, value in values.items():
        (folder / name).write_text(json.dumps(value))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_safetensors_are_converted_which_is_said_first(
    daemon: RunningDaemon, hub: Hub, checkpoint: dict[str, bytes]
) -> None:
    hub.add(REPO, {**checkpoint, "model.onnx": b"x", "README.md": b"---\nlicense: mit\n---\n"})
    before = blobs(daemon)
    lines = pull(daemon, f"hf.co/{REPO}")
    assert lines[-1] == {"status": "success", "model": f"hf.co/{REPO}"}
    told = statuses(lines)
    assert told[1] == "no GGUF files found: downloading safetensors to convert them"
    assert told.index("pulling config.json") < told.index("pulling README.md")
    assert told.index("verifying sha256 digest") < told.index("converting")
    assert "pulling model.onnx" not in told
    assert len(blobs(daemon) - before) == 2  # the model and its config; no file of the repository
    with daemon.client() as http:
        details = http.post("/api/show", json={"model": f"hf.co/{REPO}"}).json()["details"]
    assert (details["family"], details["quantization_level"]) == ("llama", "BF16")


def test_a_daemon_killed_in_the_conversion_fetches_no_weights_again(
    daemon: RunningDaemon,
    start_daemon: StartDaemon,
    hub: Hub,
    checkpoint: dict[str, bytes],
    tmp_path: Path,
) -> None:
    hub.add(REPO, checkpoint)
    body = {"model": f"hf.co/{REPO}"}
    with daemon.client() as http, http.stream("POST", "/api/pull", json=body) as lines:
        started_job(daemon).suspend()  # so that it cannot be done before
        daemon.process.kill()
        with pytest.raises(httpx.TransportError):
            lines.read()
    daemon.wait()
    fetched = hub.mirror.served_bytes
    assert fetched == sum(len(checkpoint[name]) for name in checkpoint if name.endswith("tensors"))
    again = start_daemon(env=hub_environment(hub.server.url, tmp_path), home=daemon.home, names=())
    assert temporary(again) == []
    assert pull(again, f"hf.co/{REPO}")[-1]["status"] == "success"
    assert hub.mirror.served_bytes == fetched


def test_a_checkpoint_that_cannot_be_converted_is_refused_before_its_weights_are_fetched(
    daemon: RunningDaemon, hub: Hub, checkpoint: dict[str, bytes]
) -> None:
    config = json.dumps({**CONFIG, "model_type": "unheard"}).encode()
    hub.add(REPO, {**checkpoint, "config.json": config})
    before = blobs(daemon)
    last = pull(daemon, f"hf.co/{REPO}")[-1]
    assert "unknown architecture 'unheard'" in last["error"]
    assert hub.mirror.seen == []
    assert blobs(daemon) == before


def test_a_quantization_of_safetensors_names_the_way_to_it(
    daemon: RunningDaemon, hub: Hub, checkpoint: dict[str, bytes]
) -> None:
    hub.add(REPO, checkpoint)
    last = pull(daemon, f"hf.co/{REPO}:Q4_K_M")[-1]
    assert "hearth create --quantize" in last["error"]


def test_a_damaged_model_that_was_made_is_made_again_by_a_pull(
    daemon: RunningDaemon, hub: Hub, tmp_path: Path
) -> None:
    content = bytearray(EMBER.read_bytes())
    content[-1] ^= 1
    other = tmp_path / "other.gguf"
    other.write_bytes(content)
    hub.add(REPO, parts_of(other, 2, STEM))
    pull(daemon, f"hf.co/{REPO}:Q8_0")
    path = daemon.home / "models" / "blobs" / f"sha256-{hashlib.sha256(content).hexdigest()}"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4096] + bytes(4096))
    with daemon.client() as http:
        told = http.post("/api/fsck", json={"repair": True}).text
    assert (
        f"it was made here of files that were not kept; get the model of hf.co/{REPO}:Q8_0 again: "
        "hearth pull, or hearth import" in told
    )
    assert pull(daemon, f"hf.co/{REPO}:Q8_0")[-1]["status"] == "success"
    assert path.read_bytes() == whole == bytes(content)


def test_an_artifact_of_docker_runs_with_its_own_template_and_projector(
    daemon: RunningDaemon,
) -> None:
    kinds = "application/vnd.docker.ai."
    contents = {
        f"{kinds}gguf.v3": echo_gguf(salt="docker"),
        f"{kinds}license": b"do what you like",
        f"{kinds}chat.template.jinja": b"{% for m in messages %}<{{ m.content }}>{% endfor %}",
        f"{kinds}mmproj": projector_file(),
    }
    with fake_registry() as server:
        layers = [
            {"mediaType": kind, "digest": server.add_blob(data), "size": len(data)}
            for kind, data in contents.items()
        ]
        config = {"mediaType": f"{kinds}model.config.v0.1+json", "size": 2}
        fields = {"config": {**config, "digest": server.add_blob(b"{}")}, "layers": layers}
        server.add_manifest("ai/m", fields)
        name = f"{server.address}/ai/m"
        before = blobs(daemon)
        assert pull(daemon, name)[-1] == {"status": "success", "model": name}
        assert len(blobs(daemon) - before) == 5  # the four, and a config
        served = server.served_bytes
        assert pull(daemon, name)[-1]["status"] == "success"
        assert server.served_bytes == served
    with daemon.client() as http:
        shown = http.post("/api/show", json={"model": name}).json()
        asked = {"model": name, "prompt": "hi", "stream": False}
        answer = http.post("/api/generate", json=asked).json()
    assert answer.get("response") == "<hi>", answer
    assert shown["license"] == "do what you like"
    assert "vision" in shown["capabilities"]
    assert shown["template"].startswith("{% for m in messages %}<{{")
