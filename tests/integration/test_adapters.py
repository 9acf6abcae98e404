"""ADAPTER and lora_scale with ember: from the Modelfile to the text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import pytest

import registry.builtin.ember as ember
from tests import adapter_files
from tests.conftest import RunningDaemon, StartDaemon
from tests.integration.cli_process import hearth, of_daemon

RANK = 4
OTHER = -1.0
REPEATING = "the fire is warm and the fire is warm and the fire is"
WEIGHTS = Path(ember.__file__).parent / "ember.gguf"


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon(names=())


def write_adapter(path: Path) -> None:
    """A random LoRA for the feed-forward outputs of ember, strong enough to be seen."""
    reader = gguf.GGUFReader(WEIGHTS)
    architecture = str(reader.get_field("general.architecture").contents())
    random = np.random.default_rng(5)
    sides = {}
    for tensor in reader.tensors:
        if tensor.name.endswith("ffn_down.weight"):
            columns, rows = (int(size) for size in tensor.shape)
            a = random.standard_normal((RANK, columns)).astype(np.float32)
            b = random.standard_normal((rows, RANK)).astype(np.float32)
            sides[str(tensor.name)] = a * np.float32(0.1), b * np.float32(0.1)
    adapter_files.write_adapter(path, sides, RANK, architecture)


def create(
    daemon: RunningDaemon, folder: Path, name: str, *lines: str, base: str | Path = WEIGHTS
) -> None:
    (folder / name).write_text("\n".join((f"FROM {base}", *lines)))
    ran = hearth(of_daemon(daemon), "create", name, "-f", name, cwd=folder)
    assert ran.returncode == 0, ran.stderr


def text(client: httpx.Client, model: str, prompt: str = "The fire is", **options: Any) -> str:
    body = {"model": model, "prompt": prompt, "raw": True, "stream": False}
    options = {"temperature": 0, "num_predict": 12, **options}
    response = client.post("/api/generate", json={**body, "options": options})
    assert response.status_code == 200, response.text
    return str(response.json()["response"])


def test_an_adapter_changes_the_text_by_its_scale(daemon: RunningDaemon, tmp_path: Path) -> None:
    write_adapter(tmp_path / "lora.gguf")
    create(daemon, tmp_path, "plain")
    create(daemon, tmp_path, "adapted", "ADAPTER ./lora.gguf")
    create(daemon, tmp_path, "silent", "ADAPTER ./lora.gguf", "PARAMETER lora_scale 0")
    with daemon.client() as client:
        plain = text(client, "plain")
        adapted = text(client, "adapted")
        assert text(client, "silent") == plain != adapted
        check_scales_of_requests(client, plain, adapted)
        check_scales_of_all_requests(client, plain, adapted)


def completion(client: httpx.Client, *scales: float) -> tuple[str, int]:
    """What the adapted model says with these scales of its adapters, and the tokens of the prompt
    that were not computed again."""
    lora = [{"id": number, "scale": scale} for number, scale in enumerate(scales)]
    body = {"model": "adapted", "prompt": "The fire is", "temperature": 0, "n_predict": 12}
    response = client.post("/completion", json={**body, "lora": lora})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["generation_settings"]["lora"] == lora
    return answer["content"], answer["timings"]["cache_n"]


def check_scales_of_requests(client: httpx.Client, plain: str, adapted: str) -> None:
    """Requests of several scales do not see what the others have computed, one after the other
    or at the same time."""
    other, cached = completion(client, OTHER)
    assert cached == 0
    assert other not in (plain, adapted)
    assert completion(client, 0.0) == (plain, 0)
    assert completion(client, 1.0)[0] == adapted
    assert completion(client, OTHER)[1] > 0
    wanted = {0.0: plain, OTHER: other, 1.0: adapted}
    with ThreadPoolExecutor(8) as threads:
        scales = [*wanted, *wanted, *wanted]
        said = list(threads.map(lambda scale: completion(client, scale)[0], scales))
    assert said == [wanted[scale] for scale in scales]
    refused = client.post("/completion", json={"prompt": "x", "model": "adapted",
                                               "lora": [{"id": 1, "scale": 1}]})  # fmt: skip
    assert refused.status_code == 400
    assert "has no adapter 1" in refused.text


def check_scales_of_all_requests(client: httpx.Client, plain: str, adapted: str) -> None:
    def given() -> float:
        (adapter,) = client.get("/lora-adapters?model=adapted").json()
        return float(adapter["scale"])

    for scale, wanted in ((0.0, plain), (1.0, adapted)):
        body = [{"id": 0, "scale": scale}]
        answer = client.post("/lora-adapters?model=adapted", json=body)
        assert answer.json() == {"success": True}, answer.text
        assert given() == scale
        assert text(client, "adapted") == wanted
        assert completion(client, 1.0)[0] == adapted
    for wrong in ([{"id": 1, "scale": 1}], [{"id": 0}], {"id": 0, "scale": 1}, "x"):
        assert client.post("/lora-adapters?model=adapted", json=wrong).status_code == 400
    assert client.post("/lora-adapters?model=adapted", json=[]).status_code == 200
    assert given() == 1.0


def test_parameters_of_a_modelfile_reach_the_sampler(daemon: RunningDaemon, tmp_path: Path) -> None:
    create(daemon, tmp_path, "plain")
    with daemon.client() as client:
        first = text(client, "plain", num_predict=1)
        usual = text(client, "plain", REPEATING)
    create(daemon, tmp_path, "banned", f'PARAMETER logit_bias """{first}=-inf"""')
    runs = ("dry_multiplier 5", "dry_allowed_length 1", "dry_sequence_breakers ~")
    create(daemon, tmp_path, "varied", *(f"PARAMETER {run}" for run in runs))
    with daemon.client() as client:
        assert text(client, "banned", num_predict=1) != first
        assert text(client, "banned", num_predict=1, logit_bias={}) == first
        assert text(client, "varied", REPEATING) != usual
        shown = client.post("/api/show", json={"model": "banned"}).json()
        assert f"{first}=-inf" in shown["modelfile"]


def test_a_backend_that_cannot_load_the_file_is_told(daemon: RunningDaemon, tmp_path: Path) -> None:
    create(daemon, tmp_path, "echoing", "PARAMETER backend echo")
    with daemon.client() as client:
        body = {"model": "echoing", "prompt": "x"}
        response = client.post("/api/generate", json=body)
        assert response.status_code >= 400
        assert "cannot be loaded by the backend echo" in response.json()["error"]
