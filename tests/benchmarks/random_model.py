"""Makes the benchmark model: a GGUF file with random weights in the shape of a real model.

Speed depends on the shape, the types and the vocabulary, not on what the weights say. Files are
kept in a cache folder and made once. Command: python -m tests.benchmarks.random_model --type Q8_0
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import platformdirs
from numpy.typing import NDArray

from tests.benchmarks.vocabulary import (
    CHAT_TEMPLATE,
    END_OF_TEXT,
    TURN_END,
    Vocabulary,
    read_vocabulary,
    synthetic_vocabulary,
)

ROOT = Path(__file__).resolve().parents[2]
REAL_VOCABULARY = ROOT.parent / "shared" / "vocab" / "ggml-vocab-qwen2.gguf"
TYPES = ("F16", "Q8_0", "Q4_K_M")
DEVIATION = 0.02  # of all weights: logits of the final norm then have a deviation near 0.6
QUIET_DEVIATION = 0.005  # of rows that shall never win: control tokens, parts of characters


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Qwen3-architecture model with tied embeddings."""

    name: str
    blocks: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    context_length: int


SHAPES = {
    "qwen3-0.6b": Shape("qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 40_960),
    "tiny": Shape("tiny", 2, 64, 128, 4, 2, 16, 4_096),
}


def default_folder() -> Path:
    """Where benchmark models are kept between runs."""
    return Path(platformdirs.user_cache_dir("hearth")) / "benchmarks"


def ensure_model(folder: Path, shape: Shape, kind: str) -> Path:
    """The path of the model in folder, made first when it is missing. kind: one of TYPES."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{shape.name}-{kind.lower()}.gguf"
    if target.exists():
        return target
    part = target.with_suffix(".part")
    if kind == "F16":
        write_model(part, shape, load_vocabulary())
    else:
        source = ensure_model(folder, shape, "F16")
        module = "tests.benchmarks.quantize"
        quantize = [sys.executable, "-m", module, str(source), str(part), kind]
        subprocess.run(quantize, check=True, cwd=ROOT, timeout=1800)
    return part.rename(target)


def load_vocabulary() -> Vocabulary:
    """The real vocabulary where its file is at hand, else a synthetic one of the same size."""
    if REAL_VOCABULARY.exists():
        return read_vocabulary(REAL_VOCABULARY)
    return synthetic_vocabulary()


def write_model(path: Path, shape: Shape, vocabulary: Vocabulary, seed: int = 1) -> None:
    """Write the model in F16, one tensor in memory at a time."""
    writer = gguf.GGUFWriter(path, "qwen3")
    add_metadata(writer, shape, vocabulary)
    layout = dict(tensor_shapes(shape, len(vocabulary.tokens)))
    for name, dims in layout.items():
        dtype = np.dtype(np.float32 if len(dims) == 1 else np.float16)
        writer.add_tensor_info(name, dims, dtype, int(np.prod(dims)) * dtype.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(seed)
    for name, dims in layout.items():
        writer.write_tensor_data(tensor(random, name, dims, vocabulary))
    writer.close()


def add_metadata(writer: gguf.GGUFWriter, shape: Shape, vocabulary: Vocabulary) -> None:
    """Everything but the tensors: shape, vocabulary, chat template."""
    writer.add_name(f"random {shape.name}")
    writer.add_block_count(shape.blocks)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(vocabulary.tokens.index(END_OF_TEXT))
    writer.add_eos_token_id(vocabulary.tokens.index(TURN_END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def tensor_shapes(shape: Shape, vocabulary_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes [rows, columns] of all tensors, in file order."""
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield "token_embd.weight", (vocabulary_size, shape.width)
    yield "output_norm.weight", (shape.width,)
    block: dict[str, tuple[int, ...]] = {
        "attn_norm": (shape.width,),
        "attn_q": (queries, shape.width),
        "attn_q_norm": (shape.head_size,),
        "attn_k": (keys, shape.width),
        "attn_k_norm": (shape.head_size,),
        "attn_v": (keys, shape.width),
        "attn_output": (shape.width, queries),
        "ffn_norm": (shape.width,),
        "ffn_gate": (shape.feed_forward, shape.width),
        "ffn_up": (shape.feed_forward, shape.width),
        "ffn_down": (shape.width, shape.feed_forward),
    }
    for index in range(shape.blocks):
        for name, dims in block.items():
            yield f"blk.{index}.{name}.weight", dims


def tensor(
    random: np.random.Generator, name: str, dims: tuple[int, ...], vocabulary: Vocabulary
) -> NDArray[np.float16] | NDArray[np.float32]:
    """The values of one tensor. Rows of the (tied) embedding that are no plain text are small,
    so that greedy output is whole ASCII pieces and never ends before max_tokens."""
    if len(dims) == 1:
        return np.ones(dims, np.float32)
    values = random.standard_normal(dims, np.float32)
    if name == "token_embd.weight":
        plain = np.array([vocabulary.plain(token) for token in range(dims[0])])
        values *= np.where(plain, DEVIATION, QUIET_DEVIATION).astype(np.float32)[:, None]
    else:
        values *= DEVIATION
    return values.astype(np.float16)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make a benchmark model with random weights.")
    parser.add_argument("--out", type=Path, default=default_folder(), help="cache folder")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--type", choices=TYPES, default="Q8_0", dest="kind")
    given = parser.parse_args()
    print(ensure_model(given.out, SHAPES[given.shape], given.kind))


if __name__ == "__main__":
    main()
