"""Makes golden.json: logits and greedy texts of small random models by transformers, the reference.

    python -m venv VENV && VENV/bin/pip install torch transformers accelerate
    VENV/bin/python -m tests.conformance.logits.make_golden SCRATCH_FOLDER

Each case has the tensors by name and shape, the logits at all positions of the prompt, or the
hidden states of an embedder, and the greedy continuation; all in float32. A quantized case has
those of the floating weights that its packed ones stand for.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import safe_open

from tests.conformance.convert.weights import weight, write_safetensors
from tests.conformance.logits.cases import CASES, EMBEDDERS, GENERATED, QUANTIZED, prompt
from tests.conformance.logits.quantize import quantized


def main() -> None:
    """Write golden.json beside this file."""
    scratch = Path(sys.argv[1])
    found = {name: answer(scratch, name) for name in CASES}
    for kind, name in QUANTIZED.items():
        tensors = weights_of(name, found[name]["tensors"])
        _, meant = quantized(kind, {key: torch.from_numpy(value) for key, value in tensors.items()})
        arrays = {key: value.numpy() for key, value in meant.items()}
        found[kind] = computed(scratch / kind, name, arrays)
    text = json.dumps(found, separators=(",", ":")).replace('},"', '},\n"')
    Path(__file__).with_name("golden.json").write_text(text + "\n", encoding="utf-8")


def answer(scratch: Path, name: str) -> dict[str, Any]:
    """One case, as the reference computes it."""
    shapes = saved_names(scratch, CASES[name])
    tensors = weights_of(name, shapes)
    listed = {key: list(shape) for key, shape in shapes.items()}
    return {"tensors": listed, **computed(scratch / name, name, tensors)}


def weights_of(name: str, shapes: Mapping[str, Sequence[int]]) -> dict[str, NDArray[np.float32]]:
    """The random weights of a case."""
    kind = CASES[name]["model_type"]
    return {key: weight(kind, key, tuple(shape)) for key, shape in shapes.items()}


def computed(folder: Path, name: str, tensors: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
    """What the case makes of its prompt with these weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CASES[name]))
    write_safetensors(folder / "model.safetensors", tensors, "F32")
    ids, model = prompt(name), load(folder, CASES[name])
    result: dict[str, Any] = {"rows": rows(model, ids)}
    if CASES[name]["model_type"] not in EMBEDDERS:
        result["greedy"] = greedy(model, ids)
    return result


def maker_of(config: Mapping[str, Any]) -> Any:
    """The class of transformers that knows the architecture."""
    if config["model_type"] in EMBEDDERS:
        return transformers.AutoModel
    if config["model_type"] == "gemma3":
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def load(folder: Path, config: Mapping[str, Any]) -> Any:
    """The checkpoint in folder, of which no tensor may be left over or missing."""
    model, info = maker_of(config).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not [key for key in info["missing_keys"] if "pooler" not in key], folder
    assert not info["unexpected_keys"], folder
    return model.eval()


def rows(model: Any, ids: list[int]) -> list[list[float]]:
    """The logits or hidden states at all positions."""
    with torch.no_grad():
        output = model(torch.tensor([ids]))
    found = output.logits[0] if "logits" in output else output.last_hidden_state[0]
    return [[float(f"{x:.6g}") for x in row] for row in found.float().tolist()]


def greedy(model: Any, ids: list[int]) -> list[int]:
    """The tokens of highest logits after ids, each computed with all before it."""
    tokens = list(ids)
    for _ in range(GENERATED):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(ids) :]


def saved_names(scratch: Path, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that save_pretrained would write."""
    made = transformers.AutoConfig.for_model(**copy.deepcopy(config))
    made._attn_implementation = "eager"
    folder = scratch / "names"
    maker_of(config).from_config(made).save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {key: tuple(file.get_slice(key).get_shape()) for key in sorted(file.keys())}


if __name__ == "__main__":
    main()
