"""ADAPTER, lora_scale and kv_cache_type on the backend torch through a real daemon."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.daemon_processes import PYTORCH
from tests.integration.test_adapters import REPEATING, create, text, write_adapter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]
TORCH = "PARAMETER backend torch"


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon(names=(), preloaded=PYTORCH)


def test_an_adapter_gives_the_same_text_on_both_backends(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    write_adapter(tmp_path / "lora.gguf")
    create(daemon, tmp_path, "plain", TORCH)
    create(daemon, tmp_path, "ours", "ADAPTER ./lora.gguf", TORCH)
    create(daemon, tmp_path, "silent", "ADAPTER ./lora.gguf", TORCH, "PARAMETER lora_scale 0")
    create(daemon, tmp_path, "theirs", "ADAPTER ./lora.gguf")
    with daemon.client() as client:
        said = {model: text(client, model) for model in ("plain", "ours", "theirs")}
        assert said["ours"] == said["theirs"] != said["plain"]
        assert text(client, "silent") == said["plain"]


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are of Linux")
def test_processes_of_one_model_load_an_adapter_and_give_its_text(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    write_adapter(tmp_path / "lora.gguf")
    both = ("PARAMETER tensor_parallel 2", "PARAMETER pipeline_parallel 2")
    create(daemon, tmp_path, "alone", "ADAPTER ./lora.gguf", TORCH)
    create(daemon, tmp_path, "split", "ADAPTER ./lora.gguf", TORCH, *both)
    create(daemon, tmp_path, "plain", TORCH, *both)
    with daemon.client() as client:
        said = {model: text(client, model) for model in ("plain", "split", "alone")}
        assert said["split"] == said["alone"] != said["plain"]


@pytest.mark.parametrize("kind", ["q8_0", "fp8"])
def test_a_cache_of_a_byte_repeats_what_it_has_read(
    daemon: RunningDaemon, tmp_path: Path, kind: str
) -> None:
    create(daemon, tmp_path, "narrow", TORCH, f"PARAMETER kv_cache_type {kind}")
    with daemon.client() as client:
        first = text(client, "narrow", REPEATING)
        assert "warm" in first
        assert text(client, "narrow", REPEATING) == first  # the second time from the cache


def test_a_cache_in_fp8_is_refused_by_llama_cpp_with_the_types_that_it_has(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    create(daemon, tmp_path, "other", "PARAMETER kv_cache_type fp8")
    with daemon.client() as client:
        refused = client.post("/api/generate", json={"model": "other", "prompt": "hi"})
    assert refused.status_code >= 400
    assert "llama.cpp has no cache type 'fp8'" in refused.text
