"""Makes golden.json: logits of small random models by transformers, the reference.

    python -m venv VENV && VENV/bin/pip install torch transformers
    VENV/bin/python tests/conformance/convert/make_golden.py SCRATCH_FOLDER

Each case has the config.json, the tensors by name and shape, the tokens and what the model
makes of them: the logits at some positions, or the hidden states of an embedder.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, LONG, TOKENS
from weights import weight, write_safetensors


def main() -> None:
    """Write golden.json beside this file."""
    found = {name: answer(name, config) for name, config in CASES.items()}
    text = json.dumps(found, separators=(",", ":")).replace('},"', '},\n"')
    Path(__file__).with_name("golden.json").write_text(text + "\n", encoding="utf-8")


def answer(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """One case, as the reference computes it in float32."""
    kind = config["model_type"]
    made = transformers.AutoConfig.for_model(**copy.deepcopy(config))
    made._attn_implementation = "eager"
    embeds = kind in ("bert", "roberta", "xlm-roberta")
    maker = transformers.AutoModel if embeds else transformers.AutoModelForCausalLM
    if kind == "gemma3":
        maker = transformers.AutoModelForImageTextToText
    model = maker.from_config(made).to(torch.float32).eval()
    tensors = saved_names(model, config)
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(
        folder / "model.safetensors",
        {key: weight(kind, key, shape) for key, shape in tensors.items()},
        "F32",
    )
    model, info = maker.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = [key for key in info["missing_keys"] if "pooler" not in key]
    assert not wrong, (name, wrong)
    assert not info["unexpected_keys"], name
    count = LONG.get(name, TOKENS)
    ids = [(7 * number + 3) % 61 + 1 for number in range(count)]
    with torch.no_grad():
        output = model.eval()(torch.tensor([ids]))
    rows = output.last_hidden_state[0] if embeds else output.logits[0]
    positions = [0, count // 2, count - 1]
    return {
        "config": config,
        "tensors": {key: list(shape) for key, shape in tensors.items()},
        "ids": ids,
        "positions": positions,
        "rows": [[float(f"{x:.5g}") for x in rows[position].tolist()] for position in positions],
    }


def saved_names(model: Any, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that save_pretrained would write."""
    folder = Path(sys.argv[1]) / "names"
    model.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {key: tuple(file.get_slice(key).get_shape()) for key in sorted(file.keys())}


if __name__ == "__main__":
    main()
