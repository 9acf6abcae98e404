"""Mutations of a folder of safetensors: headers, index, config and tokenizer, as JSON and as bytes.
Seeded: number and seed give the same folder again."""

from __future__ import annotations

import copy
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 63, 65, 255, 2**31, 2**63, 1e308, 0.5, -0.0, True, False, None, ""),
    *("x", "F16", "BF16", "I64", "F8_E4M3", "llama", "qwen2", "linear", [], [0], [1, 2, 3], {}),
    *("a" * 5000, "\ud800", [[[]]], {"a": {}}, -(2**63), "1", [-1, 5], [5, 2]),
)  # fmt: skip
_CONFIG_KEYS = (
    *("rope_scaling", "head_dim", "rms_norm_eps", "rope_theta", "sliding_window", "hidden_act"),
    *("num_experts", "attention_bias", "mlp_bias", "tie_word_embeddings", "quantization_config"),
    *("partial_rotary_factor", "torch_dtype", "bos_token_id", "pad_token_id", "layer_types"),
)


def mutate(sound: Path, seed: int, number: int, folder: Path) -> str:
    """Write mutant `number` of the folder sound into folder; what was changed, in words."""
    rng = random.Random(f"{seed}/{number}")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    kinds = (_change_header, _change_header, _change_header, _change_json, _change_json, _damage)
    return "; ".join(rng.choice(kinds)(folder, rng) for _ in range(rng.choice((1, 1, 1, 2))))


def _change_header(folder: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(folder.glob("*.safetensors")))
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError:  # changed before
        return "nothing"
    data = content[8 + length :]
    name = rng.choice(sorted(header))
    what, kind = f"{path.name}: {name}", rng.randrange(7)
    if kind == 0:
        del header[name]
    elif kind == 1:
        other = rng.choice(sorted(header))
        header[name], header[other] = header[other], header[name]
        what += f" and {other} swapped"
    elif kind == 2:
        header[rng.choice((name + "x", "", name.upper(), "lm_head.weight"))] = header.pop(name)
    else:
        what += ": " + _change_value(header[name], rng)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    if kind == 3:
        data = data[: rng.randrange(len(data))]
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return what


def _change_json(folder: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(folder.glob("*.json")))
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return "nothing"
    if path.name == "config.json" and rng.random() < 0.3:
        key = rng.choice(_CONFIG_KEYS)
        value[key] = rng.choice(_VALUES)
        what = f"{key} = {str(value[key])[:40]}"
    else:
        what = _change_value(value, rng)
    path.write_bytes(json.dumps(value).encode("utf-8", "surrogatepass"))
    return f"{path.name}: {what}"


def _change_value(value: Any, rng: random.Random) -> str:
    """Change something within value, at any depth."""
    path = []
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return "nothing"
        key = rng.choice(keys)
        path.append(str(key)[:30])
        inner = value[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.15:
            break
        value = inner
    kind = rng.randrange(5)
    if kind == 0:
        del value[key]
    elif kind == 1 and isinstance(inner, (int, float)) and not isinstance(inner, bool):
        value[key] = rng.choice((inner + 1, inner - 1, inner * 2, -inner, inner * 10**9))
    elif kind == 2:
        value[key] = copy.deepcopy(value[rng.choice(keys)])
    else:
        value[key] = copy.deepcopy(rng.choice(_VALUES))
    return f"{'/'.join(path)} ({kind})"


def _damage(folder: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(folder.iterdir()))
    content, kind = bytearray(path.read_bytes()), rng.randrange(4)
    if kind == 0:
        path.unlink()
        return f"{path.name} removed"
    if kind == 1:
        content = content[: rng.randrange(len(content) + 1)]
    elif content:
        limit = min(len(content), 4096)
        for _ in range(rng.choice((1, 3))):
            content[rng.randrange(limit)] ^= 1 << rng.randrange(8)
    if kind == 3:
        content += b"\0" * 8
    path.write_bytes(content)
    return f"{path.name}: damage {kind}"
