"""An adapter changes the logits as if it were part of the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from runner.backends.backend import LoadedBackend, Row
from runner.backends.llamacpp.backend import LlamaCppBackend
from runner.errors import ModelLoadFailed
from runner.types import SamplingParams

RANK, WIDTH, ALPHA = 4, 64, 8.0
TARGETS = {"blk.0.attn_q.weight": (64, 64), "blk.1.ffn_down.weight": (64, 128)}
PROMPT = [1, 40, 70, 71, 90, 120]

Matrix = NDArray[np.float32]
Sides = dict[str, tuple[Matrix, Matrix]]


def sides(seed: int = 3) -> Sides:
    """Of each changed tensor, A [rank, in] and B [out, rank]."""
    random = np.random.default_rng(seed)
    return {
        name: (
            random.standard_normal((RANK, columns)).astype(np.float32) * np.float32(0.2),
            random.standard_normal((rows, RANK)).astype(np.float32) * np.float32(0.2),
        )
        for name, (rows, columns) in TARGETS.items()
    }


def write_adapter(path: Path, of: Sides, architecture: str = "llama") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", ALPHA)
    for name, (a, b) in of.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def merge(model: Path, target: Path, of: Sides, scale: float = 1.0) -> Path:
    """A copy of the model file with the adapter added to its weights."""
    target.write_bytes(model.read_bytes())
    reader = gguf.GGUFReader(target, "r+")
    for tensor in reader.tensors:
        if tensor.name in of:
            a, b = of[tensor.name]
            np.add(tensor.data, np.float32(scale * ALPHA / RANK) * (b @ a), out=tensor.data)
    reader.data.flush()  # type: ignore[attr-defined]
    return target


def logits(loaded: LoadedBackend, sequence: int = 0) -> NDArray[np.float32]:
    """Of the token after PROMPT [vocabulary]."""
    backend = loaded.backend
    assert isinstance(backend, LlamaCppBackend)
    sampler = backend.create_sampler(SamplingParams(temperature=0))
    backend.step([Row(sequence, PROMPT, 0, sampler)])
    return backend._context.logits(1)[0].copy()


def greedy(loaded: LoadedBackend, sequences: tuple[int, ...]) -> list[list[int]]:
    """Twelve tokens for each sequence, all of them in the same steps."""
    backend = loaded.backend
    samplers = [backend.create_sampler(SamplingParams(temperature=0)) for _ in sequences]
    texts = [[*PROMPT[: 3 + at]] for at in range(len(sequences))]
    rows = [Row(s, text, 0, x) for s, text, x in zip(sequences, texts, samplers, strict=True)]
    found: list[list[int]] = [[] for _ in sequences]
    for _ in range(12):
        tokens = [sampled.token for sampled in backend.step(rows)]
        for at, token in enumerate(tokens):
            found[at].append(token)
            end = len(texts[at]) + len(found[at]) - 1
            rows[at] = Row(sequences[at], [token], end, samplers[at])
    return found


def relative_error(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("scale", [1.0, 0.5, -1.0])
def test_an_adapter_gives_the_logits_of_merged_weights(
    tmp_path: Path,
    model_file: Callable[..., Path],
    open_model: Callable[..., LoadedBackend],
    scale: float,
) -> None:
    adapter = write_adapter(tmp_path / "adapter.gguf", sides())
    merged = merge(model_file(), tmp_path / "merged.gguf", sides(), scale)
    plain = logits(open_model())
    expected = logits(open_model(path=str(merged)))
    found = logits(open_model(adapters=((str(adapter), scale),)))
    assert relative_error(found, expected) < 1e-3
    later = open_model(adapters=((str(adapter), 0.0),))
    assert relative_error(logits(later), plain) < 1e-3
    later.backend.scale_adapters((scale,))
    assert relative_error(logits(later, 1), expected) < 1e-3
    later.backend.grow(2048)
    assert relative_error(logits(later, 2), expected) < 1e-3
    assert relative_error(plain, expected) > 0.05


def test_several_adapters_add_up(
    tmp_path: Path, model_file: Callable[..., Path], open_model: Callable[..., LoadedBackend]
) -> None:
    paths = [write_adapter(tmp_path / f"{seed}.gguf", sides(seed)) for seed in (3, 4)]
    first = merge(model_file(), tmp_path / "first.gguf", sides(3))
    both = merge(first, tmp_path / "both.gguf", sides(4), 0.5)
    scales = zip(map(str, paths), (1.0, 0.5), strict=True)
    found = logits(open_model(adapters=tuple(scales)))
    assert relative_error(found, logits(open_model(path=str(both)))) < 1e-3


def test_sequences_computed_together_all_have_the_adapter(
    tmp_path: Path, model_file: Callable[..., Path], open_model: Callable[..., LoadedBackend]
) -> None:
    adapter = write_adapter(tmp_path / "adapter.gguf", sides())
    merged = merge(model_file(), tmp_path / "merged.gguf", sides())
    with_adapter = greedy(open_model(adapters=((str(adapter), 1.0),)), (0, 1, 2))
    assert with_adapter == greedy(open_model(path=str(merged)), (0, 1, 2))
    assert with_adapter != greedy(open_model(), (0, 1, 2))


def test_an_adapter_for_another_architecture_is_refused(
    tmp_path: Path, open_model: Callable[..., LoadedBackend]
) -> None:
    path = write_adapter(tmp_path / "other.gguf", sides(), "qwen2")
    with pytest.raises(ModelLoadFailed, match=r"the adapter other\.gguf was rejected"):
        open_model(adapters=((str(path), 1.0),))


def test_a_file_that_is_no_adapter_is_refused(
    model_file: Callable[..., Path], open_model: Callable[..., LoadedBackend]
) -> None:
    with pytest.raises(ModelLoadFailed, match=r"the adapter .* was rejected"):
        open_model(adapters=((str(model_file()), 1.0),))
