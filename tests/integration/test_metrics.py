"""GET /metrics of a real daemon: what Prometheus itself would read."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import StartDaemon


def samples(client: httpx.Client) -> dict[tuple[str, str], float]:
    """Every sample by its name and model."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, sample.labels.get("model_name", "")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if "le" not in sample.labels
    }


def test_requests_are_counted_for_each_model(start_daemon: StartDaemon) -> None:
    with start_daemon(names=("echo", "other")).client() as client:
        assert samples(client)["hearth:models_loaded", ""] == 0
        for text in ("hello", "hello"):
            body = {"model": "echo", "prompt": text, "max_tokens": 3}
            assert client.post("/v1/completions", json=body).status_code == 200
        found = samples(client)
    assert found["vllm:request_success_total", "echo"] == 2
    assert found["vllm:generation_tokens_total", "echo"] == 6
    assert found["vllm:time_to_first_token_seconds_count", "echo"] == 2
    assert found["vllm:request_generation_tokens_sum", "echo"] == 6
    prompt = found["vllm:prompt_tokens_total", "echo"]
    assert prompt == found["vllm:prefix_cache_queries_total", "echo"] > 0
    assert 0 < found["vllm:prefix_cache_hits_total", "echo"] < prompt
    assert found["hearth:model_loads_total", "echo"] == 1
    assert found["vllm:num_requests_running", "echo"] == 0
    assert 0 < found["vllm:kv_cache_usage_perc", "echo"] < 1
    assert found["hearth:worker_memory_bytes", "echo"] > 1e6
    assert not any(model == "other" for _, model in found)


def test_an_eviction_and_a_cancelled_request_are_counted(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(names=("echo", "other"), env={"HEARTH_MAX_LOADED_MODELS": "1"})
    with daemon.client() as client:
        body = {"model": "echo", "prompt": "ab" * 2000, "stream": True, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            next(answer.iter_lines())
        assert client.post("/v1/completions", json={"model": "other", "prompt": "x"}).is_success
        found = samples(client)
    assert found["vllm:request_success_total", "echo"] == 1
    assert found["hearth:model_evictions_total", "echo"] == 1
    assert found["hearth:models_loaded", ""] == 1
