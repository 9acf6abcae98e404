"""What a training takes is told before the teacher is asked anything."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.formats.gguf.reader import read_header
from runner.errors import InsufficientMemory
from runner.jobs import distill
from runner.jobs.distillation.batches import Plan
from runner.jobs.distillation.corpus import Corpus
from runner.jobs.distillation.memory import training_memory
from runner.jobs.distillation.student import Shape, shape_of

EMBER = Path(__file__).parents[5] / "registry/builtin/ember/ember.gguf"
SHAPE = Shape(4096, 256, 2, 4, 2, 128)
PLAN = Plan(steps=1)
STUDENT = {"num_hidden_layers": 2, "intermediate_size": 128}
with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: make torch"
)


def corpus(length: int, documents: int, *, learned: bool = True) -> Corpus:
    """Documents of one length, of which all is learned, or the last token."""
    one = np.append(np.full(length - 1, learned), False)
    one[-2] = True
    starts = np.arange(documents + 1) * length
    return Corpus(np.zeros(length * documents, np.int32), starts, np.tile(one, documents))


def total(plan: Plan = PLAN, length: int = 400, **more: Any) -> int:
    return training_memory(SHAPE, plan, corpus(length, 24, **more)).total_bytes


def test_longer_documents_more_that_is_learned_and_two_batches_at_once_take_more() -> None:
    assert total(length=400) > total(length=100)
    assert total() > total(learned=False)
    assert total() > total(Plan(steps=1, threads=1, batches_per_step=1))
    assert total(Plan(steps=1, batch_tokens=6144)) > total()


def test_a_student_takes_weights_gradients_and_the_optimizers_state_with_any_text() -> None:
    large = Shape(32_000, 2048, 32, 32, 8, 8192)
    found = training_memory(large, PLAN)
    embeddings = large.vocabulary * large.width
    assert found.weights_bytes == 4 * large.parameters
    assert found.optimizer_bytes == 4 * large.parameters + 4 * embeddings
    assert found.gradients_bytes == 3 * 4 * large.parameters
    alone = Plan(steps=1, threads=1, batches_per_step=1)
    assert training_memory(large, alone).gradients_bytes == 4 * large.parameters
    with pytest.raises(InsufficientMemory) as refused:
        found.require(3 << 30, PLAN)
    assert refused.value.details == {
        "needed_bytes": found.total_bytes,
        "available_bytes": 3 << 30,
    }
    said = str(refused.value)
    assert "needs 41 GB (weights 8.0 GB, optimizer state 8.3 GB, gradients 24 GB)" in said
    assert "only 3.2 GB is free; train with one thread, use a smaller hidden_size" in said
    with pytest.raises(InsufficientMemory, match="free; use a smaller hidden_size"):
        training_memory(large, alone).require(3 << 30, alone)
    found.require(found.total_bytes, PLAN)


def job(folder: Path, available_bytes: int, words: int = 400) -> dict[str, Any]:
    """Two steps, for which each batch is full."""
    text = folder / "text"
    text.write_text("<|endoftext|>".join(["some words of a text " * (words // 5)] * 24))
    return {
        "model": str(EMBER), "text": str(text), "student": STUDENT, "separator": "<|endoftext|>",
        "target": str(folder / "student.gguf"), "steps": 2, "threads": 2,
        "available_bytes": available_bytes,
    }  # fmt: skip


@with_torch
def test_a_student_that_cannot_fit_is_refused_before_the_teacher_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(distill, "open_model")
    with pytest.raises(InsufficientMemory, match=r"training the student needs .* 105 MB is free"):
        distill.work(job(tmp_path, 100 << 20), lambda *_: None)


@with_torch
def test_a_text_whose_batches_do_not_fit_is_refused_before_the_teacher_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(distill, "ask_teacher")
    without = training_memory(shape_of(STUDENT, read_header(EMBER)), PLAN).total_bytes
    with pytest.raises(InsufficientMemory, match=r"activations \d+ MB, logits \d+ MB\), but only"):
        distill.work(job(tmp_path, without), lambda *_: None)


@pytest.mark.slow
@with_torch
@pytest.mark.skipif(sys.platform == "win32", reason="os.wait4")
@pytest.mark.parametrize("words", [40, 400])
def test_the_process_takes_what_was_told(tmp_path: Path, words: int) -> None:
    command = (sys.executable, "-I", "-m", "runner.jobs", "distill")
    wanted = job(tmp_path, 1 << 40, words)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as stdin, process.stdout as stdout:
        stdin.write(json.dumps(wanted).encode())
        stdin.close()
        done = json.loads(stdout.read().splitlines()[-1])["done"]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    length = done["tokens"] // done["documents"]
    told = training_memory(shape_of(STUDENT, read_header(EMBER)), PLAN, corpus(length, 24))
    assert usage.ru_maxrss * 1024 == pytest.approx(told.total_bytes, rel=0.25)
