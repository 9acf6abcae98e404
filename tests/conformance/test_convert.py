"""Converted models compute what the originals do.

convert/golden.json holds what transformers makes of small random checkpoints of each
architecture; convert/make_golden.py made it. Here the same checkpoints are converted and run by
llama.cpp, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.native import library_path
from modelfile.convert.adapter import convert_adapter
from modelfile.convert.conversion import convert
from registry.formats.gguf import read_header
from tests.conformance.convert.weights import weight, write_safetensors
from tests.unit.modelfile.convert.checkpoints import files_in, ignore, no_vocabulary

FOLDER = Path(__file__).parent / "convert"
GOLDEN: dict[str, dict[str, Any]] = json.loads((FOLDER / "golden.json").read_text("utf-8"))
TYPES = ("F16", "BF16")
TOLERANCE = 2e-2
ENCODERS = ("bert", "xlm-roberta")


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], NDArray[Any]]:
    """What llama.cpp makes of every case in every type."""
    jobs = {}
    for name, case in GOLDEN.items():
        folder = tmp_path_factory.mktemp(name)
        _write_checkpoint(folder, case, _weights(case))
        for kind in TYPES:
            target = folder / f"{kind}.gguf"
            convert(files_in(folder), target, kind, ignore, no_vocabulary)
            jobs[name, kind] = _job(target, case)
    return dict(zip(jobs, _evaluate(list(jobs.values())), strict=True))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", GOLDEN)
def test_a_converted_model_computes_what_the_checkpoint_does(
    name: str, kind: str, computed: dict[tuple[str, str], NDArray[Any]]
) -> None:
    assert _difference(computed[name, kind], np.array(GOLDEN[name]["rows"])) <= TOLERANCE


@pytest.mark.parametrize("name", ["llama2", "qwen2", "gemma2", "phi3"])
@pytest.mark.parametrize("stabilized", [False, True])
@pytest.mark.parametrize("dora", [False, True])
def test_a_converted_adapter_changes_a_model_as_its_merged_weights_do(
    name: str, stabilized: bool, dora: bool, tmp_path: Path
) -> None:
    if dora and library_path("llamacpp") is None:
        pytest.skip("the kernels were not compiled")
    case, alpha = GOLDEN[name], 6.0
    weights = _weights(case)
    ranks = {
        key: 4 if "mlp" in key else 2
        for key, shape in case["tensors"].items()
        if len(shape) == 2 and ".layers." in key
    }
    pairs = {
        key: (
            _random(f"{key}.A", (rank, weights[key].shape[1])),
            _random(f"{key}.B", (len(weights[key]), rank)),
        )
        for key, rank in ranks.items()
    }
    scales = {key: alpha / (rank**0.5 if stabilized else rank) for key, rank in ranks.items()}
    base, merged, adapter = (tmp_path / part for part in ("base", "merged", "adapter"))
    for folder in (base, merged, adapter):
        folder.mkdir()
    _write_checkpoint(base, case, weights)
    changed = {key: weights[key] + scales[key] * (b @ a) for key, (a, b) in pairs.items()}
    magnitudes = {key: 1 + _random(f"{key}.m", (len(weights[key]),)) * 20 for key in pairs}
    if dora:
        for key, rows in magnitudes.items():
            changed[key] *= (rows / np.linalg.norm(changed[key], axis=1))[:, None]
    _write_checkpoint(merged, case, {**weights, **changed})
    config: dict[str, Any] = {
        "r": 2,
        "rank_pattern": {r"mlp\..*": 4},
        "lora_alpha": alpha,
        "use_dora": dora,
    }
    config["use_rslora"] = stabilized
    _write_adapter(adapter, pairs, config, magnitudes if dora else {})
    for folder in (base, merged):
        convert(files_in(folder), folder / "model.gguf", "F32", ignore, no_vocabulary)
    convert_adapter(files_in(adapter), adapter / "lora.gguf", "auto", base / "model.gguf", ignore)

    plain, with_adapter, expected = _evaluate(
        [
            _job(base / "model.gguf", case),
            {
                **_job(base / "model.gguf", case),
                "adapters": [str(adapter / "lora.gguf")],
                "kernels": dora,
            },
            _job(merged / "model.gguf", case),
        ]
    )

    assert _difference(with_adapter, expected) <= TOLERANCE
    assert _difference(plain, expected) > 5 * TOLERANCE


def test_a_converted_file_says_what_it_is(tmp_path: Path) -> None:
    case = GOLDEN["qwen3_moe"]
    _write_checkpoint(tmp_path, case, _weights(case))
    convert(files_in(tmp_path), tmp_path / "model.gguf", "auto", ignore, no_vocabulary)
    header = read_header(tmp_path / "model.gguf")
    assert header.architecture == "qwen3moe"
    assert header.quantization == "BF16"
    assert header.expert_count == 4
    assert header.head_count_kv == 2
    assert header.key_length == 32
    assert header.metadata["general.size_label"].startswith("4x")


def _weights(case: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    kind = case["config"]["model_type"]
    return {key: weight(kind, key, tuple(shape)) for key, shape in case["tensors"].items()}


def _random(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return weight("", name, shape)


def _write_checkpoint(
    folder: Path, case: Mapping[str, Any], weights: Mapping[str, NDArray[np.float32]]
) -> None:
    (folder / "config.json").write_text(json.dumps(case["config"]))
    dtype = "F32" if folder.name == "merged" else "BF16"
    write_safetensors(folder / "model.safetensors", weights, dtype)


def _write_adapter(
    folder: Path,
    pairs: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]],
    config: Mapping[str, Any],
    magnitudes: Mapping[str, NDArray[np.float32]],
) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
    tensors = {
        f"base_model.model.{key.removesuffix('.weight')}.lora_{side}.weight": values
        for key, pair in pairs.items()
        for side, values in zip("AB", pair, strict=True)
    }
    for key, values in magnitudes.items():
        stem = f"base_model.model.{key.removesuffix('.weight')}"
        tensors[f"{stem}.lora_magnitude_vector"] = values
    write_safetensors(folder / "adapter_model.safetensors", tensors, "F32")


def _job(path: Path, case: Mapping[str, Any]) -> dict[str, Any]:
    embeds = case["config"]["model_type"] in ENCODERS
    return {
        "path": str(path),
        "ids": case["ids"],
        "positions": case["positions"],
        "embeds": embeds,
    }


def _evaluate(jobs: Sequence[Mapping[str, Any]]) -> list[NDArray[Any]]:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "evaluate.py")],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [np.array(rows) for rows in json.loads(done.stdout)]


def _difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
