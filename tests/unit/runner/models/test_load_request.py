from __future__ import annotations

import pytest

from runner.models.load_request import load_request
from runner.settings import Settings


def test_a_request_counts_before_the_modelfile_and_that_before_the_settings() -> None:
    settings = Settings(context_length=8192, num_threads=3, kv_cache_type="q8_0")
    request = load_request({"num_thread": 2, "num_ctx": 100}, {"num_ctx": 50}, settings)
    assert (request.num_ctx, request.num_thread, request.kv_cache_type) == (50, 2, "q8_0")
    assert load_request({}, {}, settings).num_ctx == 8192


def test_what_says_nothing_is_left_to_the_plan() -> None:
    request = load_request({"num_gpu": -1, "num_thread": 0}, {}, Settings())
    assert (request.num_gpu, request.num_thread, request.num_ctx) == (None, None, None)
    assert load_request({}, {"num_gpu": 0}, Settings()).num_gpu == 0
    assert load_request({}, {}, Settings(step_timeout=5.0)).step_limit_s == 5.0


def test_what_is_quantized_while_loading_is_for_torch_unless_another_backend_was_named() -> None:
    def wanted(**given: object) -> tuple[str | None, str | None]:
        request = load_request(given, {}, Settings())
        return request.backend, request.quantize

    assert wanted() == wanted(quantize="none") == (None, None)
    assert wanted(quantize="int8") == wanted(quantize="int8", backend="auto") == ("torch", "int8")
    assert wanted(quantize="int8", backend="llamacpp") == ("llamacpp", "int8")
    assert load_request({"quantize": "int8"}, {"quantize": "none"}, Settings()).quantize is None


@pytest.mark.parametrize(("parameters", "scale", "mmap"), [({}, 1.0, True), (
    {"lora_scale": 0.0, "use_mmap": False}, 0.0, False)])  # fmt: skip
def test_a_value_that_is_nothing_counts(
    parameters: dict[str, object], scale: float, mmap: bool
) -> None:
    request = load_request(parameters, {}, Settings())
    assert (request.lora_scale, request.use_mmap) == (scale, mmap)
