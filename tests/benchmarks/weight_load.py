"""How fast weights come from the page cache: python -m tests.benchmarks.weight_load [--mib 512].

Writes a checkpoint of random weights, loads it, and reads the same file into a buffer, in turns,
each by CPU time and by the clock: the ratio says what the load costs beside the reading. Wanted
are 0.8 of the read rate and, beyond the weights themselves, 300 MB and two tensors of memory.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HIDDEN, INNER, HEADS, KEY_HEADS, VOCABULARY = 1024, 3072, 16, 8, 65536
BUFFER_BYTES = 4 << 20
WIDTHS = {"BF16": 2, "F32": 4}


def tensor_shapes(layers: int) -> dict[str, tuple[int, ...]]:
    """Of a Llama with tied embeddings."""
    keys = HIDDEN // HEADS * KEY_HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(layers):
        stem = f"model.layers.{layer}."
        shapes[f"{stem}input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{stem}post_attention_layernorm.weight"] = (HIDDEN,)
        for name, rows in (("q", HIDDEN), ("k", keys), ("v", keys), ("o", HIDDEN)):
            shapes[f"{stem}self_attn.{name}_proj.weight"] = (rows, HIDDEN)
        for name in ("gate", "up"):
            shapes[f"{stem}mlp.{name}_proj.weight"] = (INNER, HIDDEN)
        shapes[f"{stem}mlp.down_proj.weight"] = (HIDDEN, INNER)
    return shapes


def write_checkpoint(folder: Path, size_bytes: int, kind: str) -> Path:
    """A folder with config.json and one file of about size_bytes. The weights are small."""
    per_layer = (2 * HIDDEN + 2 * HIDDEN // HEADS * KEY_HEADS + 3 * INNER) * HIDDEN * WIDTHS[kind]
    layers = max(1, (size_bytes - VOCABULARY * HIDDEN * WIDTHS[kind]) // per_layer)
    config = {
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "torch_dtype": {"BF16": "bfloat16", "F32": "float32"}[kind],
    }
    (folder / "config.json").write_text(json.dumps(config))
    entries, place = {}, 0
    for name, shape in tensor_shapes(layers).items():
        size = shape[0] * (shape[1] if len(shape) > 1 else 1) * WIDTHS[kind]
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 64)
    noise = bytes((7 * at * at + 3 * at) % 61 for at in range(1 << 20))  # tiny floats, no NaN
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for start in range(0, place, len(noise)):
            file.write(noise[: place - start])
    return folder


def read(file: Path) -> None:
    """All of the file, into one buffer again and again."""
    buffer = bytearray(BUFFER_BYTES)
    with file.open("rb", buffering=0) as source:
        while source.readinto(buffer):
            pass


def build(folder: Path, quantize: str | None = None) -> object:
    """The model of the checkpoint with its weights in place, quantized on the way if that is
    asked for."""
    import torch

    from runner.backends.torch.loading.loader import build_model
    from runner.backends.torch.loading.memory_plan import dtype_for
    from runner.backends.torch.loading.source import open_source
    from runner.backends.torch.loading.weights import WeightPlacement

    source = open_source(folder)
    dtype = dtype_for(source.config, "cpu")
    with torch.inference_mode():
        place = WeightPlacement(dtype, torch.device("cpu"), 64, quantize=quantize)
        return build_model(source, place)


def seconds(action: Callable[[], object]) -> tuple[float, float]:
    """(by the clock, of CPU time) that the action takes; what it gives is let go of after that."""
    start, start_cpu = time.perf_counter(), time.process_time()
    kept = action()
    taken = time.perf_counter() - start, time.process_time() - start_cpu
    del kept
    return taken


def peak_bytes(folder: Path, quantize: str | None = None) -> tuple[int, int]:
    """(before, after) the load: the most memory of a process of its own."""
    module = "tests.benchmarks.weight_load"
    command = [sys.executable, "-m", module, "--peak", str(folder)]
    command += [] if quantize is None else ["--quantize", quantize]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    before, after = done.stdout.split()
    return int(before), int(after)


def tell_peak(folder: Path, quantize: str | None) -> None:
    """Print this process's peak before and after a load."""
    import torch

    torch.zeros(1)
    before = high_water_bytes()
    build(folder, quantize)
    print(before, high_water_bytes())


def high_water_bytes() -> int:
    """The most memory that this process had (Linux). getrusage's number is the parent's too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> int:
    """The command line; 0 when the target rate is met."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.weight_load", description=__doc__
    )
    parser.add_argument("--mib", type=int, default=512, help="of weights")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--type", choices=WIDTHS, default="BF16", dest="kind")
    parser.add_argument("--quantize", choices=("int8", "int4", "fp8"))
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        tell_peak(given.peak, given.quantize)
        return 0
    with tempfile.TemporaryDirectory(prefix="hearth-loading-") as scratch:
        folder = write_checkpoint(Path(scratch), given.mib << 20, given.kind)
        file = folder / "model.safetensors"
        size_bytes = file.stat().st_size
        read(file)
        seconds(lambda: build(folder, given.quantize))  # modules are imported, code is generated
        turns = [
            (seconds(lambda: read(file)), seconds(lambda: build(folder, given.quantize)))
            for _ in range(given.rounds)
        ]
        ratios = []
        for at, clock in enumerate(("clock", "CPU time")):
            rates = [size_bytes / min(turn[side][at] for turn in turns) / 1e9 for side in (0, 1)]
            ratios.append(rates[1] / rates[0])
            print(
                f"{clock}: page cache {rates[0]:.2f} GB/s, load {rates[1]:.2f} GB/s:"
                f" ratio {ratios[-1]:.2f}"
            )
        before, after = peak_bytes(folder, given.quantize)
        print(f"peak beyond the file: {(after - before - size_bytes) / 1e6:.0f} MB")
    return 0 if ratios[0] >= 0.8 else 1


if __name__ == "__main__":
    raise SystemExit(main())
