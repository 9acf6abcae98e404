"""Decoding on a CPU beside transformers: python -m tests.benchmarks.torch_cpu --help.

Makes a random checkpoint in the shape of Qwen3-0.6B in bfloat16 and lets both sides generate
greedily for so many prompts at once, in turns, each in a process that stays up. --transformers is
the Python of an environment with torch and transformers. The target is 1.5 times its generate at
8 requests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.engine.engine import Engine
from runner.types import GenerateRequest, SamplingParams

SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
}
PROMPT_TOKENS, VOCABULARY, TARGET = 32, 151936, 1.5
Generate = Callable[[Sequence[Sequence[int]], int], float]  # prompts, tokens -> seconds


def write_checkpoint(folder: Path) -> None:
    """config.json and random weights, 1.2 GB; one tensor in memory at a time."""
    import struct

    import torch

    entries, place = {}, 0
    for name, shape in tensor_shapes().items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    header += b" " * (-len(header) % 64)
    torch.manual_seed(1)
    (folder / "config.json").write_text(json.dumps(SHAPE))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for shape in tensor_shapes().values():
            one = torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.02
            file.write(one.bfloat16().view(torch.uint8).numpy().tobytes())


def tensor_shapes() -> dict[str, tuple[int, ...]]:
    """Of SHAPE."""
    hidden, inner, head = 1024, 3072, 128
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (151936, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(28):
        stem = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{stem}{name}.weight"] = (hidden,)
        for name in ("q_norm", "k_norm"):
            shapes[f"{stem}self_attn.{name}.weight"] = (head,)
        for name, rows in (("q", 16 * head), ("k", 8 * head), ("v", 8 * head)):
            shapes[f"{stem}self_attn.{name}_proj.weight"] = (rows, hidden)
        shapes[f"{stem}self_attn.o_proj.weight"] = (hidden, 16 * head)
        for name in ("gate", "up"):
            shapes[f"{stem}mlp.{name}_proj.weight"] = (inner, hidden)
        shapes[f"{stem}mlp.down_proj.weight"] = (hidden, inner)
    return shapes


def hearth(folder: Path, threads: int) -> Generate:
    """Generates by this project's engine."""
    import torch

    from runner.backends.backend import Capacity
    from runner.backends.torch.attention.block_pool import BlockPool
    from runner.backends.torch.attention.paged import create_caches
    from runner.backends.torch.backend import TorchBackend
    from runner.backends.torch.executor import CacheGeometry, LocalExecutor
    from runner.backends.torch.layers.decoder import Decoder
    from runner.backends.torch.loading.loader import build_model
    from runner.backends.torch.loading.memory_plan import dtype_for
    from runner.backends.torch.loading.source import open_source
    from runner.backends.torch.loading.weights import WeightPlacement
    from tests.fake_backend import FakeTokenizer

    class Silent(FakeTokenizer):
        """Any token is the same text: both sides tell token ids only."""

        def piece(self, token: int) -> bytes:
            """See Tokenizer."""
            return b"."

        def is_end(self, token: int) -> bool:
            """See Tokenizer."""
            return False

    torch.set_num_threads(threads)
    source = open_source(folder)
    dtype, context = dtype_for(source.config, "cpu"), 1024
    with torch.inference_mode():
        model = build_model(source, WeightPlacement(dtype, torch.device("cpu"), context))
    assert isinstance(model, Decoder)
    blocks = 16 * context // 16
    capacity = Capacity(blocks * 16, 16, context, 1024, VOCABULARY, 1, True)
    shape = source.config.shape
    caches = create_caches(shape.layers, (blocks, 16, shape.heads_kv, shape.head), dtype, "cpu")
    pool = BlockPool(blocks, 16, 16, context)
    executor = LocalExecutor(model, caches, CacheGeometry(16, 16, context // 16), "cpu")
    engine = Engine(TorchBackend(executor, capacity, pool), Silent())
    return driver(engine)


def driver(engine: Engine) -> Generate:
    """Lets the engine answer prompts, of which it keeps nothing."""
    turn = 0

    def generate(prompts: Sequence[Sequence[int]], tokens: int) -> float:
        nonlocal turn
        turn += 1
        start = time.perf_counter()
        for number, prompt in enumerate(prompts):
            request = GenerateRequest(
                f"{turn}-{number}",
                SamplingParams(temperature=0),
                max_tokens=tokens,
                ignore_eos=True,
                cache_salt=f"{turn}-{number}",
            )
            engine.submit(request, prompt)
        while engine.busy:
            engine.step()
        return time.perf_counter() - start

    return generate


TRANSFORMERS = """
import json, sys, time
import torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(int(sys.argv[2]))
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()
model.generation_config.eos_token_id = None
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    prompts = torch.tensor(asked["prompts"])
    start = time.perf_counter()
    with torch.inference_mode():
        found = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=False, pad_token_id=0,
            max_new_tokens=asked["tokens"], min_new_tokens=asked["tokens"],
        )
    taken = time.perf_counter() - start
    assert found.shape[1] == prompts.shape[1] + asked["tokens"], found.shape
    print(taken, flush=True)
"""


class Other:
    """transformers' generate in a process of its own."""

    def __init__(self, python: str, folder: Path, threads: int) -> None:
        command = [python, "-c", TRANSFORMERS, str(folder), str(threads)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit("transformers did not start; its message stands above")

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> float:
        """See Generate."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        stdin.flush()
        return float(stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def main() -> int:
    """The command line; 0 when the target is met."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.torch_cpu", description=__doc__
    )
    parser.add_argument("--transformers", required=True, metavar="PYTHON")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    prompts = [
        [1000 + 37 * number + 11 * at for at in range(PROMPT_TOKENS)]
        for number in range(given.requests)
    ]
    with tempfile.TemporaryDirectory(prefix="hearth-torch-cpu-") as scratch:
        write_checkpoint(Path(scratch))
        other = Other(given.transformers, Path(scratch), given.threads)
        try:
            own = hearth(Path(scratch), given.threads)
            sides = {"transformers": other.generate, "hearth": own}
            taken: dict[str, list[float]] = {name: [] for name in sides}
            for turn in range(given.rounds + 1):
                for name, generate in sides.items():
                    seconds = generate(prompts, given.tokens)
                    if turn:  # the first one warms up
                        taken[name].append(seconds)
        finally:
            other.close()
    rates = {
        name: given.requests * given.tokens / statistics.median(found)
        for name, found in taken.items()
    }
    for name, rate in rates.items():
        print(f"{name}: {rate:.1f} tokens/s at {given.requests} requests")
    ratio = rates["hearth"] / rates["transformers"]
    print(f"ratio {ratio:.2f}, target {TARGET}")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
