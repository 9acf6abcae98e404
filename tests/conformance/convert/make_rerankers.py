"""Makes rerankers.json: scores of small random cross-encoders by transformers, the reference.

    python -m venv VENV && VENV/bin/pip install torch transformers
    VENV/bin/python tests/conformance/convert/make_rerankers.py SCRATCH_FOLDER

Each case has the config.json, the tensors by name and shape, the vocabulary with the template of
its pairs, and for each pair of texts the tokens and the model's output.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parent))

from make_golden import saved_names
from reranker_cases import PAIRS, RERANKERS, tokenizer_json
from weights import weight, write_safetensors


def main() -> None:
    """Write rerankers.json beside this file."""
    found = {name: answer(name, case["config"]) for name, case in RERANKERS.items()}
    text = json.dumps(found, separators=(",", ":")).replace('},"', '},\n"')
    Path(__file__).with_name("rerankers.json").write_text(text + "\n", encoding="utf-8")


def answer(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """One case, as the reference computes it in float32."""
    maker = transformers.AutoModelForSequenceClassification
    made = transformers.AutoConfig.for_model(**copy.deepcopy(config))
    tensors = saved_names(maker.from_config(made), config)
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    values = {key: weight(config["model_type"], key, shape) for key, shape in tensors.items()}
    write_safetensors(folder / "model.safetensors", values, "F32")
    model, info = maker.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"], name
    assert not info["unexpected_keys"], name
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(name)))
    return {
        "tensors": {key: list(shape) for key, shape in tensors.items()},
        "pairs": [scored(model.eval(), tokenizer, *pair) for pair in PAIRS],
    }


def scored(model: Any, tokenizer: Tokenizer, query: str, document: str) -> dict[str, Any]:
    """A pair of texts with its tokens and the model's output."""
    encoded = tokenizer.encode(query, document)
    types = torch.tensor([encoded.type_ids])
    if model.config.type_vocab_size < 2:
        types = torch.zeros_like(types)
    with torch.no_grad():
        output = model(torch.tensor([encoded.ids]), token_type_ids=types)
    return {"ids": encoded.ids, "output": float(f"{output.logits.item():.6g}")}


if __name__ == "__main__":
    main()
