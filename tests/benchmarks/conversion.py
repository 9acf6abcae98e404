"""Speed and memory of converting a checkpoint, against llama.cpp's converter on the same file.

    python -m tests.benchmarks.conversion [--converter convert_hf_to_gguf.py --python PYTHON]

Makes a Llama of about 500 MB of random weights in a scratch folder and removes it again. Both
converters run in processes of their own and end with the file on the disk; PYTHON is one that
has torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.convert.weights import write_safetensors

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 11,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}
TIMEOUT_S = 300
TARGET_RATIO = 0.8
OURS = """
import sys
from pathlib import Path
from modelfile.convert.conversion import convert
from modelfile.convert.metadata import MetadataValue
folder = Path(sys.argv[1])
tokens = tuple(f"t{number}" for number in range(32000))
values = (
    MetadataValue("tokenizer.ggml.model", "string", "llama"),
    MetadataValue("tokenizer.ggml.tokens", "strings", tokens),
    MetadataValue("tokenizer.ggml.scores", "f32s", [0.0] * 32000),
    MetadataValue("tokenizer.ggml.token_type", "i32s", [1] * 32000),
)
files = {path.name: path for path in folder.iterdir()}
convert(files, Path(sys.argv[2]), sys.argv[3], lambda *_: None, lambda *_: values)
"""
# llama.cpp's converter with its own entry point; only its tokenizer is left out, as ours is.
THEIRS = """
import runpy, sys
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
from conversion.llama import LlamaModel
def set_vocab(self):
    self.gguf_writer.add_tokenizer_model("llama")
    self.gguf_writer.add_token_list([f"t{number}" for number in range(32000)])
    self.gguf_writer.add_token_scores([0.0] * 32000)
    self.gguf_writer.add_token_types([1] * 32000)
LlamaModel.set_vocab = set_vocab
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds, and the most memory of the process in MB."""

    seconds: float
    peak_mb: float


def make_checkpoint(folder: Path) -> None:
    """A checkpoint of random weights in bfloat16."""
    hidden, wide, words = 1024, 4096, 32000
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (words, hidden),
    }
    for number in range(CONFIG["num_hidden_layers"]):
        layer = f"model.layers.{number}."
        for name, rows in (("q", hidden), ("k", 256), ("v", 256), ("o", hidden)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (rows, hidden)
        for name in ("gate", "up"):
            shapes[f"{layer}mlp.{name}_proj.weight"] = (wide, hidden)
        shapes[f"{layer}mlp.down_proj.weight"] = (hidden, wide)
        for name in ("input", "post_attention"):
            shapes[f"{layer}{name}_layernorm.weight"] = (hidden,)
    generator = np.random.default_rng(1)
    tensors = {
        name: generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()
    }
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(CONFIG))


def make_apart(folder: Path) -> int:
    """make_checkpoint in a process of its own: children begin with the peak of their parent."""
    source = f"from tests.benchmarks.conversion import *; make_checkpoint(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", source], check=True, timeout=TIMEOUT_S)
    return (folder / "model.safetensors").stat().st_size


def measure(command: Sequence[str]) -> Measured:
    """Run a command to its end."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(said.decode("utf-8", "replace")[-2000:])
    return Measured(time.perf_counter() - begin, usage.ru_maxrss / 1024)


def main() -> int:
    """Print MB/s and peak memory for each type; 0 when every target was met."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.conversion")
    parser.add_argument("--converter", type=Path, help="llama.cpp's convert_hf_to_gguf.py")
    parser.add_argument("--python", default=sys.executable, help="runs the converter")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--types", default="BF16,F16")
    given = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory(prefix="hearth-converting-") as scratch:
        folder, target = Path(scratch) / "model", Path(scratch) / "model.gguf"
        folder.mkdir()
        size_mb = make_apart(folder) / 1e6
        for kind in given.types.split(","):
            ours = [sys.executable, "-c", OURS, str(folder), str(target), kind]
            theirs = [given.python, "-c", THEIRS, str(given.converter), str(folder)]
            theirs += ["--outfile", str(target), "--outtype", kind.lower()]
            best = _best("hearth", ours, target, size_mb, given.rounds)
            if given.converter is not None:
                other = _best("llama.cpp", theirs, target, size_mb, given.rounds)
                ratio = other.seconds / best.seconds
                met = met and ratio >= TARGET_RATIO
                print(f"  {kind}: {ratio:.2f} of llama.cpp's speed, target {TARGET_RATIO}")
    return 0 if met else 1


def _best(name: str, command: list[str], target: Path, size_mb: float, rounds: int) -> Measured:
    runs = []
    for _ in range(rounds):
        target.unlink(missing_ok=True)
        runs.append(measure(command))
    best = min(runs, key=lambda run: run.seconds)
    speed = size_mb / best.seconds
    print(f"{name}: {size_mb:.0f} MB in {best.seconds:.2f} s, {speed:.0f} MB/s,", end=" ")
    print(f"at most {best.peak_mb:.0f} MB of memory")
    return best


if __name__ == "__main__":
    sys.exit(main())
