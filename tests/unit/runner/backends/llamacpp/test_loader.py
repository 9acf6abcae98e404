"""Loading reports what it does, and why it fails."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_cpp import llama_cpp as native

from kernels.native import library_path
from runner.backends.backend import LoadedBackend, Row
from runner.backends.llamacpp import load, parameters
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan, SamplingParams

Open = Callable[..., LoadedBackend]


def test_progress_rises_to_the_end(plan: LoadPlan) -> None:
    shares: list[float] = []
    load(plan, shares.append).backend.close()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_an_error_of_the_progress_report_stops_the_load(plan: LoadPlan) -> None:
    def fail(share: float) -> None:
        raise TimeoutError(f"gave up at {share}")

    with pytest.raises(TimeoutError, match="gave up"):
        load(plan, fail)


def test_a_file_that_is_no_model_is_refused_with_the_native_reason(
    plan: LoadPlan, tmp_path: Path
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"NOPE" + bytes(100))
    with pytest.raises(ModelLoadFailed, match=r"broken\.gguf.*magic"):
        load(replace(plan, path=str(path)), lambda share: None)


def test_the_native_reason_is_told_although_others_took_the_log(
    plan: LoadPlan, tmp_path: Path
) -> None:
    load(plan, lambda share: None).backend.close()
    native.llama_log_set(native.llama_log_callback(), None)
    test_a_file_that_is_no_model_is_refused_with_the_native_reason(plan, tmp_path)


def test_a_file_cut_short_is_refused(plan: LoadPlan, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(Path(plan.path).read_bytes()[:-1000])
    with pytest.raises(ModelLoadFailed, match=r"cut\.gguf"):
        load(replace(plan, path=str(path)), lambda share: None)


def test_a_missing_file_is_refused(plan: LoadPlan, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"none\.gguf"):
        load(replace(plan, path=str(tmp_path / "none.gguf")), lambda share: None)


def test_an_unknown_cache_type_is_refused_with_those_there_are(open_model: Open) -> None:
    with pytest.raises(ModelLoadFailed, match=r"'q9_9'.*q8_0"):
        open_model(kv_cache_type="q9_9")


def test_a_quantised_cache_without_flash_attention_is_refused(open_model: Open) -> None:
    with pytest.raises(ModelLoadFailed, match="flash attention"):
        open_model(kv_cache_type="q8_0", flash_attention=False)


def test_an_encoder_is_refused_for_generation(open_model: Open) -> None:
    with pytest.raises(ModelLoadFailed, match="embeddings"):
        open_model({"architecture": "bert", "pooling": 1})


def test_the_chat_template_is_the_one_in_the_file(open_model: Open) -> None:
    assert open_model({"chat_template": "{{ messages }}"}).chat_template == "{{ messages }}"
    assert open_model().chat_template is None


def test_a_template_of_its_own_for_tools_is_found(open_model: Open) -> None:
    named = [
        {"name": "default", "template": "{{ messages }}"},
        {"name": "tool_use", "template": "{{ tools }}"},
    ]
    model = open_model({"chat_template": named})
    assert (model.chat_template, model.tool_template) == ("{{ messages }}", "{{ tools }}")
    assert open_model({"chat_template": "{{ messages }}"}).tool_template is None


@pytest.mark.parametrize("use_mmap", [True, False])
def test_a_model_loads_with_and_without_a_memory_map(open_model: Open, use_mmap: bool) -> None:
    assert open_model(use_mmap=use_mmap).backend.capacity.vocabulary == 270


def test_loading_says_nothing_above_debug(
    open_model: Open, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        open_model()
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_a_full_pool_is_no_warning(open_model: Open, caplog: pytest.LogCaptureFixture) -> None:
    from runner.backends.backend import PoolFull, Row

    backend = open_model(pool_tokens=256, max_sequences=4).backend
    with caplog.at_level(logging.INFO):
        backend.step([Row(0, [7] * 200, 0)])
        with pytest.raises(PoolFull):
            backend.step([Row(1, [7] * 200, 0)])
    assert caplog.records == []


def test_a_process_that_forgets_to_close_ends_cleanly(plan: LoadPlan) -> None:
    program = f"""
from runner.backends.backend import Row
from runner.backends.llamacpp import load
from runner.types import LoadPlan, SamplingParams
loaded = load(LoadPlan({plan.path!r}, "llamacpp", 256, 256, 4, threads=1), lambda share: None)
sampler = loaded.backend.create_sampler(SamplingParams())
print(loaded.backend.step([Row(0, [1, 2, 3], 0, sampler)])[0].sequence)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_rope_overrides_change_what_is_computed(open_model: Callable[..., LoadedBackend]) -> None:
    def vector(**changes: Any) -> list[float]:
        backend = open_model({"pooling": 3}, embedding=True, **changes).backend
        return backend.embed([[5, 9, 7, 6, 20, 8]])[0]

    own = vector()
    assert vector(rope_frequency_base=10_000.0) == pytest.approx(own, abs=1e-4)
    assert vector(rope_frequency_base=50.0) != pytest.approx(own, abs=1e-3)
    assert vector(rope_frequency_scale=0.1) != pytest.approx(own, abs=1e-3)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_a_locked_model_is_in_locked_memory(open_model: Callable[..., LoadedBackend]) -> None:
    def locked_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmLck")).split()[1]) * 1024

    before = locked_bytes()
    open_model({}, use_mlock=True)
    assert locked_bytes() > before


needs_kernels = pytest.mark.skipif(
    library_path("llamacpp") is None, reason="no kernels were compiled here"
)


@needs_kernels
@pytest.mark.parametrize(
    ("model", "changed", "chooses"),
    [
        ({"width": 128, "quantized": "Q8_0"}, {}, True),
        ({"width": 128, "quantized": "Q8_0"}, {"threads": 2}, False),
        ({"width": 128, "quantized": "Q8_0"}, {"native_kernels": False}, False),
        ({"width": 128, "quantized": "Q8_0"}, {"kv_cache_type": "q4_0"}, False),
        ({"width": 1088, "blocks": 1, "quantized": "Q8_0"}, {}, False),  # heads of 272 values
    ],
)
def test_threads_are_chosen_for_each_step_where_the_answers_stay_the_same(
    open_model: Open,
    monkeypatch: pytest.MonkeyPatch,
    model: dict[str, Any],
    changed: dict[str, Any],
    chooses: bool,
) -> None:
    monkeypatch.setattr(parameters, "threads_for", lambda size: 2)
    chosen: list[tuple[int, int]] = []
    set_threads = native.llama_set_n_threads

    def watched(context: Any, count: int, batch_count: int) -> None:
        chosen.append((count, batch_count))
        set_threads(context, count, batch_count)

    monkeypatch.setattr(native, "llama_set_n_threads", watched)
    backend = open_model(model, **{"threads": None, **changed}).backend
    sampler = backend.create_sampler(SamplingParams(temperature=0))
    assert len(backend.step([Row(0, [5, 6, 7], 0, sampler)])) == 1
    assert chosen == ([(2, 2)] if chooses else [])


@needs_kernels
@pytest.mark.parametrize(("width", "head_dim"), [(128, 32), (1088, 272)])
def test_there_are_drafts_where_the_kernels_compute_attention(
    open_model: Open, width: int, head_dim: int
) -> None:
    model = {"width": width, "blocks": 1, "quantized": "Q8_0"}
    loaded = open_model(model, draft_tokens=None)
    assert (loaded.backend.capacity.draft_tokens > 0) == (head_dim <= 256)
