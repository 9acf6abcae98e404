"""Pulls of LoRA adapters: the model that they are for is found or pulled too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from registry.manifest import ADAPTER_TYPE, MODEL_TYPE, Manifest
from tests.conformance.convert.weights import weight, write_safetensors
from tests.conftest import RunningDaemon, StartDaemon
from tests.hub_server import Hub, hub_environment, hub_server
from tests.integration.test_adapters import text, write_adapter
from tests.integration.test_create_convert import started_job, temporary
from tests.integration.test_pull_made import (
    EMBER,
    blobs,
    checkpoint_files,
    pull,
    statuses,
)

REPO, BASE = "someone/lora", "someone/base"
CONFIG = {"peft_type": "LORA", "r": 64, "lora_alpha": 8, "base_model_name_or_path": BASE}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the model that the adapter is for."""
    return checkpoint_files(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The adapter's matrices, for the query of the first layer."""
    path = tmp_path_factory.mktemp("lora") / "adapter_model.safetensors"
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    tensors = {
        f"{name}A.weight": weight("", "a", (64, 64)),
        f"{name}B.weight": weight("", "b", (64, 64)),
    }
    write_safetensors(path, tensors, "F32")
    return path.read_bytes()


@pytest.fixture
def hub(weights: bytes) -> Iterator[Hub]:
    """A Hub with the adapter."""
    with hub_server() as hub:
        config = json.dumps(CONFIG).encode()
        hub.add(REPO, {"adapter_config.json": config, "adapter_model.safetensors": weights})
        yield hub


@pytest.fixture
def daemon(start_daemon: StartDaemon, hub: Hub, tmp_path: Path) -> RunningDaemon:
    return start_daemon(env=hub_environment(hub.server.url, tmp_path))


def manifest(daemon: RunningDaemon, repo: str = REPO) -> Manifest:
    path = daemon.home.joinpath("models", "manifests", "hf.co", *repo.split("/"), "latest")
    return Manifest.from_bytes(path.read_bytes())


def generate(daemon: RunningDaemon, model: str) -> dict[str, Any]:
    body = {"model": model, "prompt": "hi", "stream": False, "options": {"num_predict": 4}}
    with daemon.client(120.0) as http:
        answer: dict[str, Any] = http.post("/api/generate", json=body).json()
    return answer


def test_an_adapter_comes_with_the_model_that_it_is_for(
    daemon: RunningDaemon, hub: Hub, base: dict[str, bytes]
) -> None:
    hub.add(BASE, base)
    before = blobs(daemon)
    lines = pull(daemon, f"hf.co/{REPO}")
    assert lines[-1] == {"status": "success", "model": f"hf.co/{REPO}"}, lines
    told = statuses(lines)
    said = told.index(f"the adapter requires {BASE}, which is pulled too")
    assert told.index("pulling adapter_model.safetensors") < said < told.index("converting")
    assert told.count("success") == 1
    made = manifest(daemon)
    assert made.of_type(MODEL_TYPE) == manifest(daemon, BASE).of_type(MODEL_TYPE)
    assert len(made.of_type(ADAPTER_TYPE)) == 1
    assert len(blobs(daemon) - before) == 4  # the model, the adapter, and a config of each
    assert generate(daemon, f"hf.co/{REPO}").get("eval_count") == 4
    fetched = hub.mirror.served_bytes
    assert statuses(pull(daemon, f"hf.co/{REPO}")) == ["pulling manifest", "success"]
    assert hub.mirror.served_bytes == fetched


def test_dora_is_refused_where_the_kernels_are_switched_off(
    start_daemon: StartDaemon, hub: Hub, base: dict[str, bytes], tmp_path: Path
) -> None:
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    tensors = {
        f"{name}A.weight": weight("", "a", (4, 64)),
        f"{name}B.weight": weight("", "b", (64, 4)),
        f"{name}magnitude_vector": weight("", "m", (64,)),
    }
    write_safetensors(tmp_path / "dora.safetensors", tensors, "F32")
    config = json.dumps({**CONFIG, "use_dora": True, "r": 4}).encode()
    files = {"adapter_model.safetensors": (tmp_path / "dora.safetensors").read_bytes()}
    hub.add(BASE, base)
    hub.add(REPO, {"adapter_config.json": config, **files})
    env = hub_environment(hub.server.url, tmp_path)
    daemon = start_daemon(env={**env, "HEARTH_NATIVE_KERNELS": "0"})
    last = pull(daemon, f"hf.co/{REPO}")[-1]
    assert "HEARTH_NATIVE_KERNELS switches them off; add it to a model with" in last["error"]


def test_another_kind_is_refused_first_and_a_base_that_cannot_be_had_is_named(
    daemon: RunningDaemon, hub: Hub, base: dict[str, bytes]
) -> None:
    other = json.dumps({**CONFIG, "peft_type": "IA3"}).encode()
    hub.add(REPO, {"adapter_config.json": other})
    before = blobs(daemon)
    assert "peft_type" in pull(daemon, f"hf.co/{REPO}")[-1]["error"]
    assert (hub.mirror.seen, blobs(daemon)) == ([], before)
    hub.add(REPO, {"adapter_config.json": json.dumps(CONFIG).encode()})
    question = f"/api/models/{BASE}"
    hub.server.special[question] = lambda handler: handler.reply(
        403, b"{}", X_Error_Code="GatedRepo"
    )
    last = pull(daemon, f"hf.co/{REPO}")[-1]
    assert last["code"] == "remote_model_not_found"
    assert f"hf.co/{REPO} is an adapter for {BASE}, which cannot be had" in last["error"]
    assert "accept its terms at" in last["error"]
    assert '"ADAPTER <the folder of the files>"' in last["error"]
    fetched = hub.mirror.served_bytes
    hub.add(BASE, base)
    assert pull(daemon, f"hf.co/{REPO}")[-1]["status"] == "success"
    of_base = sum(len(data) for name, data in base.items() if name.endswith("tensors"))
    assert hub.mirror.served_bytes == fetched + of_base


def test_a_daemon_killed_while_it_makes_an_adapter_fetches_nothing_again(
    daemon: RunningDaemon, start_daemon: StartDaemon, hub: Hub, base: dict[str, bytes],
    tmp_path: Path,
) -> None:  # fmt: skip
    hub.add(BASE, base)
    assert pull(daemon, f"hf.co/{BASE}")[-1]["status"] == "success"
    body = {"model": f"hf.co/{REPO}"}
    with daemon.client() as http, http.stream("POST", "/api/pull", json=body) as lines:
        started_job(daemon).suspend()  # so that it cannot be done before
        daemon.process.kill()
        with pytest.raises(httpx.TransportError):
            lines.read()
    daemon.wait()
    fetched = hub.mirror.served_bytes
    again = start_daemon(env=hub_environment(hub.server.url, tmp_path), home=daemon.home, names=())
    assert temporary(again) == []
    told = pull(again, f"hf.co/{REPO}")
    assert told[-1]["status"] == "success", told
    assert f"using the installed model hf.co/{BASE} as the base of the adapter" in statuses(told)
    assert hub.mirror.served_bytes == fetched


def test_an_adapter_in_gguf_is_put_on_the_installed_model(
    daemon: RunningDaemon, hub: Hub, tmp_path: Path
) -> None:
    write_adapter(tmp_path / "lora.gguf")
    hub.repositories.clear()
    hub.add(REPO, {"unusual-name.gguf": (tmp_path / "lora.gguf").read_bytes()})
    hub.tags[REPO] = ["gguf", f"base_model:adapter:{BASE}"]
    hub.add(BASE, {"ember-Q8_0.gguf": EMBER.read_bytes()})
    assert pull(daemon, f"hf.co/{BASE}:Q8_0")[-1]["status"] == "success"
    lines = pull(daemon, f"hf.co/{REPO}")
    assert lines[-1]["status"] == "success", lines
    assert f"using the installed model hf.co/{BASE}:Q8_0 as the base of the adapter" in statuses(
        lines
    )
    with daemon.client(120.0) as http:
        plain, adapted = (text(http, f"hf.co/{name}") for name in (f"{BASE}:Q8_0", REPO))
    assert plain != adapted
