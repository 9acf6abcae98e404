"""Quantized safetensors through a real daemon: create, show, and answers like their weights."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

from registry.digest import Digest
from tests.checkpoint_files import CONFIG, shapes, tokenizer
from tests.conformance.convert.weights import weight
from tests.conformance.logits.quantize import CONFIGS, quantized, write_tensors
from tests.conftest import RunningDaemon, StartDaemon
from tests.daemon_processes import PYTORCH
from tests.hub_server import hub_environment, hub_server
from tests.integration.cli_process import hearth, of_daemon
from tests.integration.test_pull_made import pull
from tests.unit.runner.backends.torch.models.running import Running

# As show names them. They take seconds each.
NAMES = {
    "fp8_tensor": "FP8",
    "fp8_blocks": "FP8",
    "fp8_rows": "FP8",
    "int8_rows": "INT8",
    "int4_symmetric": "INT4",
    "int4_asymmetric": "INT4",
    "gptq": "GPTQ-INT4",
    "gptq_reordered": "GPTQ-INT4",
    "awq": "AWQ-INT4",
}
DEFAULT = "fp8_blocks"
OTHERS = [pytest.param(kind, marks=pytest.mark.slow) for kind in NAMES if kind != DEFAULT]
PROMPT = "warm hearth"
COUNT = 24
BYTES = 256  # the tokens that are bytes, by their number; the few others are left out


@pytest.fixture
def client(torch_daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with torch_daemon.client() as http:
        yield http


def write_checkpoints(folder: Path, kind: str) -> None:
    """Below folder: packed, a checkpoint quantized as kind, and plain, what it decodes to."""
    tensors = {
        name: torch.from_numpy(weight("llama", name, shape)) for name, shape in shapes().items()
    }
    configs = {"packed": {**CONFIG, "quantization_config": CONFIGS[kind]}, "plain": CONFIG}
    for part, found in zip(configs, quantized(kind, tensors), strict=True):
        place = folder / part
        place.mkdir()
        (place / "config.json").write_text(json.dumps(configs[part]))
        (place / "tokenizer.json").write_text(json.dumps(tokenizer()))
        write_tensors(place / "model.safetensors", found)


def uploaded(client: httpx.Client, folder: Path) -> dict[str, str]:
    """The files of the folder as blobs of the daemon, by their names."""
    files = {}
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        files[path.name] = str(Digest.of(content))
        sent = client.post(f"/api/blobs/{files[path.name]}", content=content)
        assert sent.status_code in (200, 201), sent.text
    return files


def create(client: httpx.Client, folder: Path, **fields: Any) -> httpx.Response:
    files = uploaded(client, folder)
    body = {"model": "packed", "files": files, "stream": False, **fields}
    return client.post("/api/create", json=body)


def answer(client: httpx.Client) -> list[int]:
    """The greedy continuation of PROMPT, as tokens, which are bytes."""
    body: dict[str, Any] = {"model": "packed", "prompt": PROMPT, "raw": True, "stream": False}
    banned = {str(token): -100 for token in range(BYTES, CONFIG["vocab_size"])}
    options = {"temperature": 0, "num_predict": COUNT, "logit_bias": banned}
    body |= {"logprobs": True, "options": options}
    response = client.post("/api/generate", json=body)
    assert response.status_code == 200, response.text
    return [item["bytes"][0] for item in response.json()["logprobs"]]


@pytest.mark.parametrize("kind", [DEFAULT, *OTHERS])
def test_a_quantized_checkpoint_becomes_a_model_that_answers_like_its_weights(
    client: httpx.Client, kind: str, tmp_path: Path
) -> None:
    write_checkpoints(tmp_path, kind)
    created = create(client, tmp_path / "packed", parameters={"backend": "torch", "num_ctx": 64})
    assert created.status_code == 200, created.text
    shown: Mapping[str, Any] = client.post("/api/show", json={"model": "packed"}).json()
    assert shown["details"]["quantization_level"] == NAMES[kind]
    tokens = answer(client)
    prompt = list(PROMPT.encode())
    logits = Running(tmp_path / "plain").step((0, [*prompt, *tokens[:-1]]))
    logits = logits[len(prompt) - 1 :, :BYTES]
    # The likeliest each time, or so near that bfloat16, in which some CPUs multiply, may differ.
    chosen = logits[torch.arange(len(tokens)), torch.tensor(tokens)]
    assert len(tokens) == COUNT
    assert bool((chosen >= logits.amax(dim=-1) - 0.03 * logits.std()).all())


def test_without_the_backend_torch_the_refusal_says_what_to_write(
    client: httpx.Client, tmp_path: Path
) -> None:
    write_checkpoints(tmp_path, "awq")
    refused = create(client, tmp_path / "packed")
    assert refused.status_code == 400
    assert "already quantized ('awq')" in refused.json()["error"]
    assert "write PARAMETER backend torch" in refused.json()["error"]


@pytest.mark.slow
def test_a_quantized_checkpoint_is_pulled_as_it_is_and_runs_on_torch(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    write_checkpoints(tmp_path, "fp8_tensor")
    files = {path.name: path.read_bytes() for path in (tmp_path / "packed").iterdir()}
    with hub_server() as hub:
        hub.add("someone/tiny", files)
        daemon = start_daemon(
            env=hub_environment(hub.server.url, tmp_path), names=(), preloaded=PYTORCH
        )
        lines = pull(daemon, "hf.co/someone/tiny")
        assert lines[-1] == {"status": "success", "model": "hf.co/someone/tiny"}
        with daemon.client() as http:
            body = {"model": "hf.co/someone/tiny", "prompt": "hi", "raw": True, "stream": False}
            body["options"] = {"num_predict": 4}
            said = http.post("/api/generate", json=body)
            loaded = http.get("/api/ps").json()["models"]
    assert (said.status_code, said.json()["eval_count"]) == (200, 4)
    assert loaded[0]["details"]["quantization_level"] == "FP8"


@pytest.mark.slow
def test_a_modelfile_names_the_folder_and_show_tells_what_it_takes(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    write_checkpoints(tmp_path, "int8_rows")
    (tmp_path / "Modelfile").write_text("FROM ./packed\nPARAMETER backend torch\n")
    environment = of_daemon(start_daemon(names=(), preloaded=PYTORCH))
    created = hearth(environment, "create", "mine", cwd=tmp_path)
    assert created.returncode == 0, created.stderr
    shown = hearth(environment, "show", "mine").stdout
    assert "INT8" in shown
    count = sum(math.prod(shape) for shape in shapes().values())
    assert f"{count / 1000:.3g}K" in shown


def test_a_model_of_floats_is_quantized_while_it_is_loaded(
    client: httpx.Client, tmp_path: Path
) -> None:
    write_checkpoints(tmp_path, DEFAULT)
    assert create(client, tmp_path / "plain").status_code == 200

    def said(**options: Any) -> httpx.Response:
        body = {"model": "packed", "prompt": "hi", "raw": True, "stream": False}
        return client.post("/api/generate", json=body | {"options": options | {"num_predict": 4}})

    def loaded() -> tuple[str | None, str]:
        (entry,) = client.get("/api/ps").json()["models"]
        return entry.get("quantize"), entry["details"]["quantization_level"]

    plan = {"model": "packed", "options": {"quantize": "int8"}}
    before = client.post("/api/plan", json=plan).json()
    assert (before["quantize"], before["backend"], before["fits"]) == ("int8", "torch", "now")
    floats = client.post("/api/plan", json={"model": "packed", "options": {}}).json()
    for kind in ("int8", "fp8"):
        answered = said(quantize=kind)
        assert (answered.status_code, answered.json()["eval_count"]) == (200, 4)
        assert loaded() == (kind, "F16")
    assert said().status_code == 200
    assert loaded() == ("fp8", "F16")  # a request that does not say takes what is there
    assert said(quantize="none").status_code == 200
    assert loaded() == (None, "F16")
    assert floats["quantize"] is None
    refused = said(quantize="int3")
    assert refused.status_code == 400
    assert "expected one of none, int8, int4, fp8" in refused.json()["error"]
    written = create(client, tmp_path / "plain", parameters={"quantize": "int8", "num_ctx": 64})
    assert written.status_code == 200
    shown = client.post("/api/show", json={"model": "packed"}).json()
    assert shown["memory"]["weights_bytes"] == before["weights"]
    assert said().status_code == 200
    assert loaded() == ("int8", "F16")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_model_is_quantized_by_a_text_and_keeps_what_that_costs(
    client: httpx.Client, tmp_path: Path, method: str
) -> None:
    write_checkpoints(tmp_path, DEFAULT)
    text = "".join(f"{number} warm hearths and {number + 1} cold ones. " for number in range(400))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "words.txt").write_text(text)
    (digest,) = uploaded(client, tmp_path / "text").values()
    fields = {"quantize": f"{method}-int4", "calibrate": digest}
    refused = create(client, tmp_path / "plain", **fields, tensor_types={"attn_v": "Q8_0"})
    assert refused.status_code == 400
    assert "tensor_types is for GGUF's types and not for" in refused.json()["error"]
    refused = create(client, tmp_path / "plain", **fields, parameters={"backend": "llamacpp"})
    assert refused.status_code == 400
    assert "runs on the backend torch only" in refused.json()["error"]
    created = create(client, tmp_path / "plain", **fields)
    assert created.status_code == 200, created.text
    shown: Mapping[str, Any] = client.post("/api/show", json={"model": "packed"}).json()
    assert shown["details"]["quantization_level"] == f"{method.upper()}-INT4"
    names = {tensor["name"] for tensor in shown["tensors"]}
    assert {"model.layers.1.mlp.down_proj.qweight", "model.norm.weight"} <= names
    measured = shown["perplexity"]
    assert (measured["type"], measured["text"]) == (
        f"{method.upper()}-INT4",
        "the last quarter of the calibration text",
    )
    before, after = measured["before"], measured["after"]
    assert before["tokens"] == after["tokens"] > 1000
    assert 0.5 < after["perplexity"] / before["perplexity"] < 2
    assert len(answer(client)) == COUNT
    again = client.post(
        "/api/create",
        json={"model": "named", "from": "packed", "system": "Be short.", "stream": False},
    )
    assert again.status_code == 200
    assert client.post("/api/show", json={"model": "named"}).json()["perplexity"] == measured


@pytest.mark.slow
def test_half_of_the_weights_are_left_out_and_the_cost_is_told(
    client: httpx.Client, tmp_path: Path
) -> None:
    write_checkpoints(tmp_path, DEFAULT)
    text = "".join(f"{number} warm hearths and {number + 1} cold ones. " for number in range(400))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "words.txt").write_text(text)
    (digest,) = uploaded(client, tmp_path / "text").values()
    fields = {"quantize": "sparse-2:4", "evaluate": digest}
    created = create(client, tmp_path / "plain", **fields, calibrate=digest)
    assert created.status_code == 200, created.text
    shown: Mapping[str, Any] = client.post("/api/show", json={"model": "packed"}).json()
    assert shown["details"]["quantization_level"] == "SPARSE-2:4"
    tensors = {tensor["name"]: tensor["shape"] for tensor in shown["tensors"]}
    assert tensors["model.layers.0.mlp.up_proj.sparse_values"] == [32, 96]
    assert tensors["model.layers.0.mlp.up_proj.sparse_indices"] == [8, 96]
    assert '"chosen_by":"wanda"' in shown["model_info"]["hearth.checkpoint.config"]
    measured = shown["perplexity"]
    assert measured["after"]["tokens"] > 1000
    assert measured["after"]["perplexity"] != measured["before"]["perplexity"]
    assert len(answer(client)) == COUNT
