"""Quantizing, calibrating and measuring the bundled model, as the daemon's jobs do."""

from __future__ import annotations

import struct
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelfile.errors import BuildError
from registry.builtin import ember
from registry.formats.gguf import read_header
from runner.errors import InvalidRequest
from runner.jobs import imatrix, perplexity, quantize
from runner.jobs.llamacpp.imatrix_file import read_matrix
from runner.library.jobs import run_job
from runner.library.progress import Progress
from tests.ember.mixture import stream

EMBER = Path(ember.__file__).parent / "ember.gguf"


def ignore(status: str, completed: int, total: int, state: object = None) -> None:
    """No progress wanted."""


def text_of(seed: int, conversations: int) -> str:
    chosen = islice(stream(seed), conversations)
    return "\n".join(turn.content for talk in chosen for turn in talk.turns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ember as f16.gguf, a text and an importance matrix."""
    path = tmp_path_factory.mktemp("quantizing")
    (path / "text").write_text(text_of(1, 25))
    (path / "calibration").write_text(text_of(2, 20))
    job = {"source": EMBER, "target": path / "f16.gguf", "type": "F16", "allow_requantize": True}
    quantize.work(job, ignore)
    job = {"model": path / "f16.gguf", "text": path / "calibration", "target": path / "imatrix"}
    assert imatrix.work(job, ignore)["chunks"] >= 2
    return path


def quantized(folder: Path, kind: str, **more: Any) -> Path:
    target = folder / f"{kind}-{len(more)}.gguf"
    job = {"source": folder / "f16.gguf", "target": target, "type": kind, **more}
    quantize.work(job, ignore)
    assert not list(folder.glob("*.partial"))
    return target


def measured(folder: Path, model: Path) -> float:
    value = perplexity.work({"model": model, "text": folder / "text"}, ignore)["perplexity"]
    assert isinstance(value, float)
    return value


def test_q8_0_and_q4_k_m_stay_near_the_perplexity_of_f16(folder: Path) -> None:
    exact = measured(folder, folder / "f16.gguf")
    assert measured(folder, quantized(folder, "Q8_0")) == pytest.approx(exact, rel=0.01)
    assert measured(folder, quantized(folder, "Q4_K_M")) == pytest.approx(exact, rel=0.08)


@pytest.mark.parametrize("kind", ["IQ4_XS", "IQ2_XS"])
def test_low_types_work_with_a_calibrated_matrix(folder: Path, kind: str) -> None:
    rest = [
        r"^blk\.[1-9]|^token_embd|^output",
        "q8_0",
    ]  # the search for the best codes takes seconds
    target = quantized(folder, kind, imatrix=folder / "imatrix", overrides=[rest])
    header = read_header(target)
    types = {tensor.name: tensor.type for tensor in header.tensors}
    assert (header.quantization, types["blk.0.ffn_up.weight"]) == (kind, kind)


def test_a_type_that_needs_a_matrix_says_so(folder: Path) -> None:
    with pytest.raises(BuildError, match="IQ2_XS needs an importance matrix; give --imatrix"):
        quantized(folder, "IQ2_XS")
    assert not (folder / "IQ2_XS-0.gguf").exists()


def test_quantized_weights_are_refused_unless_allowed(folder: Path) -> None:
    job = {"source": EMBER, "target": folder / "again.gguf", "type": "Q4_0"}
    with pytest.raises(BuildError, match=r"already quantized \(Q8_0\).*--allow-requantize"):
        quantize.work(job, ignore)
    assert not (folder / "again.gguf").exists()


def test_overrides_choose_the_type_of_single_tensors(folder: Path) -> None:
    target = quantized(folder, "Q4_0", overrides=[[r"ffn_down\.weight$", "q8_0"]])
    types = {tensor.name: tensor.type for tensor in read_header(target).tensors}
    assert types["blk.0.ffn_down.weight"] == "Q8_0"
    assert types["blk.0.attn_q.weight"] == "Q4_0"


@pytest.mark.parametrize(
    ("pattern", "kind", "words"),
    [
        ("(", "Q8_0", "is not a valid regular expression"),
        ("nothing_like_it", "Q8_0", "no tensor's name matches"),
        ("attn_q", "Q9", "unknown tensor type 'Q9'"),
        ("attn_q", "IQ2_XS", "needs an importance matrix"),
        ("a" * 300, "Q8_0", "a pattern of tensor names has 300 characters"),
    ],
)
def test_overrides_that_cannot_be_used_are_told(
    folder: Path, pattern: str, kind: str, words: str
) -> None:
    with pytest.raises(BuildError, match=words):
        quantized(folder, "Q4_0", overrides=[[pattern, kind]])


def test_the_older_format_of_a_matrix_says_the_same(folder: Path, tmp_path: Path) -> None:
    matrix = read_matrix(folder / "imatrix")
    content = struct.pack("<i", len(matrix))
    for name, values in matrix.items():
        content += struct.pack("<i", len(name)) + name.encode()
        content += struct.pack("<ii", 2, values.size) + (values * 2).astype("<f4").tobytes()
    (tmp_path / "m.dat").write_bytes(content)
    again = read_matrix(tmp_path / "m.dat")
    assert all(np.allclose(again[name], values) for name, values in matrix.items())
    (tmp_path / "m.dat").write_bytes(content[:-3])
    with pytest.raises(BuildError, match="truncated"):
        read_matrix(tmp_path / "m.dat")


def test_a_matrix_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    name = b"blk.0.attn_q.weight"
    content = struct.pack("<ii", 1, len(name)) + name + struct.pack("<iif", 1, 1, 1.0)
    (tmp_path / "m.dat").write_bytes(content)
    with pytest.raises(BuildError, match=r"another model: blk\.0\.attn_q\.weight has 1 values"):
        quantized(folder, "Q2_K", imatrix=tmp_path / "m.dat")


def test_a_text_that_is_too_short_is_told_with_numbers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("short")
    with pytest.raises(InvalidRequest, match="needs 1024: give more text"):
        perplexity.work({"model": EMBER, "text": tmp_path / "text"}, ignore)


async def test_the_job_reports_its_progress(folder: Path) -> None:
    target = folder / "job.gguf"
    job = {"source": str(folder / "f16.gguf"), "target": str(target), "type": "q8_0"}
    steps: list[Progress] = []

    async def report(progress: Progress) -> None:
        steps.append(progress)

    result = await run_job("quantize", job, report, "tensors")
    assert (steps[0].status, steps[0].unit) == ("quantizing", "tensors")
    assert result["type"] == "Q8_0"
    assert 8.5 <= result["bits_per_weight"] < 9
    assert target.exists()
