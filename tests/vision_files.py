"""Tiny models that read images, or recordings, with random weights: a language model and its
projector, for three kinds of images in a prompt.

    idefics3  plain positions, causal; tokens around and between the slices of an image
    gemma3    the tokens of an image see each other
    qwen2vl   positions of two dimensions (M-RoPE)

and for two kinds of recordings, by encoders that are Whisper's:

    ultravox  four frames are a token
    qwen2a    two frames are one; tokens around a recording, and M-RoPE

The tensors are those that llama.cpp's tools/mtmd/clip.cpp loads.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

CONTROL, NORMAL, BYTE = 3, 1, 6
MARKS = (
    *("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"),
    *("<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>"),
    *("<row_2_col_1>", "<row_2_col_2>", "<start_of_image>", "<end_of_image>"),
    *("<|vision_start|>", "<|vision_end|>"),
)
WORDS = ("▁the", "▁fire", "▁is", "▁warm", "▁and", "ing", "hearth", "▁", "▁▁", "\n\n")
WIDTH, BLOCKS, HEADS = 64, 2, 4
VISION_WIDTH, VISION_HEADS = 32, 2
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

NORMS = tuple(
    f"{name}.weight" for name in ("norm", "ln1", "ln2", "post_ln", "norm_pre", "norm_mid")
)

Shapes = list[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class VisionFiles:
    """What was written."""

    model: Path
    projector: Path


@dataclass(frozen=True)
class _Kind:
    """What distinguishes the three. tokens_side: patches of a side that become one token."""

    architecture: str
    projector: str
    image_size: int
    patch_size: int
    merged: int


KINDS = {
    "idefics3": _Kind("llama", "idefics3", 32, 8, 2),
    "gemma3": _Kind("gemma3", "gemma3", 32, 4, 2),
    "qwen2vl": _Kind("qwen2vl", "qwen2vl_merger", 32, 4, 2),
}


def write_vision_model(
    folder: Path, kind: str, *, width: int = WIDTH, template: str = CHAT_TEMPLATE
) -> VisionFiles:
    """Both files of a kind. width: of the projector's embeddings."""
    files = VisionFiles(folder / f"{kind}.gguf", folder / f"{kind}-mmproj-{width}.gguf")
    _write_model(files.model, KINDS[kind], template)
    _write_projector(files.projector, KINDS[kind], width)
    return files


AUDIO_KINDS = {"ultravox": "llama", "qwen2a": "qwen2vl"}  # the architecture of the language model
_STACKED, _MELS, _FRAMES = 4, 80, 1500


def write_audio_model(folder: Path, kind: str) -> VisionFiles:
    """Both files of a kind that hears."""
    files = VisionFiles(folder / f"{kind}.gguf", folder / f"{kind}-mmproj.gguf")
    _write_model(files.model, _Kind(AUDIO_KINDS[kind], kind, 0, 0, 0), CHAT_TEMPLATE)
    writer = gguf.GGUFWriter(files.projector, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", kind)
    for name, value in (
        ("num_mel_bins", _MELS),
        ("embedding_length", VISION_WIDTH),
        ("feed_forward_length", 2 * VISION_WIDTH),
        ("block_count", 1),
        ("projection_dim", WIDTH),
        ("attention.head_count", VISION_HEADS),
        ("projector.stack_factor", _STACKED),
    ):
        writer.add_uint32(f"clip.audio.{name}", value)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    _write_tensors(writer, _audio_shapes(kind))
    return files


def _audio_shapes(kind: str) -> Shapes:
    shapes: Shapes = [("a.position_embd.weight", (_FRAMES, VISION_WIDTH))]
    for number, inputs in ((1, _MELS), (2, VISION_WIDTH)):
        shapes += [(f"a.conv1d.{number}.weight", (VISION_WIDTH, inputs, 3))]
        shapes += [(f"a.conv1d.{number}.bias", (VISION_WIDTH, 1))]
    shapes += [(f"a.post_ln.{part}", (VISION_WIDTH,)) for part in ("weight", "bias")]
    block = [(name, shape) for name, shape in _block_shapes("a") if "attn_k.bias" not in name]
    if kind == "qwen2a":
        return [
            *shapes,
            *block,
            ("mm.a.fc.weight", (WIDTH, VISION_WIDTH)),
            ("mm.a.fc.bias", (WIDTH,)),
        ]
    size = VISION_WIDTH * _STACKED
    shapes += [("mm.a.mlp.1.weight", (2 * size, size)), ("mm.a.mlp.2.weight", (WIDTH, size))]
    return [*shapes, *block, *((f"mm.a.norm_{at}.weight", (size,)) for at in ("pre", "mid"))]


def png(width: int, height: int, seed: int = 0) -> bytes:
    """A PNG file of random blocks, made without a library."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
    pixels = small.repeat(4, 0).repeat(4, 1)[:height, :width]
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _write_model(path: Path, kind: _Kind, template: str) -> None:
    writer = gguf.GGUFWriter(path, kind.architecture)
    size = _add_vocabulary(writer)
    writer.add_chat_template(template)
    writer.add_block_count(BLOCKS)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    if kind.architecture == "gemma3":
        writer.add_key_length(WIDTH // HEADS)
        writer.add_value_length(WIDTH // HEADS)
        writer.add_sliding_window(64)
    if kind.architecture == "qwen2vl":
        writer.add_rope_dimension_sections([2, 3, 3, 0])
    _write_tensors(writer, [*_model_shapes(kind, size)])


def _add_vocabulary(writer: gguf.GGUFWriter) -> int:
    tokens = [*MARKS, *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * (len(MARKS) + 256) + [-float(rank) for rank in range(1, 11)])
    types = [2] + [CONTROL] * (len(MARKS) - 1) + [BYTE] * 256 + [NORMAL] * len(WORDS)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(4)
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(True)
    writer.add_vocab_size(len(tokens))
    return len(tokens)


def _model_shapes(kind: _Kind, size: int) -> Shapes:
    keys = WIDTH // 2
    shapes: Shapes = [
        ("token_embd.weight", (size, WIDTH)),
        ("output_norm.weight", (WIDTH,)),
        ("output.weight", (size, WIDTH)),
    ]
    for block in range(BLOCKS):
        named = [
            ("attn_norm", (WIDTH,)),
            ("attn_q", (WIDTH, WIDTH)),
            ("attn_k", (keys, WIDTH)),
            ("attn_v", (keys, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)),
            ("ffn_norm", (WIDTH,)),
            ("ffn_gate", (2 * WIDTH, WIDTH)),
            ("ffn_up", (2 * WIDTH, WIDTH)),
            ("ffn_down", (WIDTH, 2 * WIDTH)),
        ]
        if kind.architecture == "gemma3":
            head = (WIDTH // HEADS,)
            named += [("post_attention_norm", (WIDTH,)), ("post_ffw_norm", (WIDTH,))]
            named += [("attn_k_norm", head), ("attn_q_norm", head)]
        shapes += [(f"blk.{block}.{name}.weight", dims) for name, dims in named]
        if kind.architecture == "qwen2vl":
            shapes += [(f"blk.{block}.attn_q.bias", (WIDTH,))]
            shapes += [(f"blk.{block}.attn_{name}.bias", (keys,)) for name in "kv"]
    return shapes


def _write_projector(path: Path, kind: _Kind, width: int) -> None:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind.projector)
    writer.add_bool("clip.use_gelu", True)
    for name, value in (
        ("image_size", kind.image_size),
        ("patch_size", kind.patch_size),
        ("embedding_length", VISION_WIDTH),
        ("feed_forward_length", 2 * VISION_WIDTH),
        ("block_count", 1),
        ("projection_dim", width),
        ("attention.head_count", VISION_HEADS),
        ("projector.scale_factor", kind.merged),
        ("preproc_image_size", 2 * kind.image_size),
    ):
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.4, 0.6])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.25])
    _write_tensors(writer, _projector_shapes(kind, width))


def _projector_shapes(kind: _Kind, width: int) -> Shapes:
    patches = (kind.image_size // kind.patch_size) ** 2
    merged = VISION_WIDTH * kind.merged**2
    inner = (VISION_WIDTH, 3, kind.patch_size, kind.patch_size)
    shapes: Shapes = [("v.patch_embd.weight", inner)]
    shapes += [(f"v.post_ln.{part}", (VISION_WIDTH,)) for part in ("weight", "bias")]
    shapes += _block_shapes("v")
    if kind.projector == "qwen2vl_merger":
        shapes += [("v.patch_embd.weight.1", inner)]
        for index, columns in ((0, merged), (2, width)):
            shapes += [(f"mm.{index}.weight", (width, columns)), (f"mm.{index}.bias", (width,))]
        return shapes
    shapes += [("v.patch_embd.bias", (VISION_WIDTH,))]
    shapes += [("v.position_embd.weight", (patches, VISION_WIDTH))]
    if kind.projector == "gemma3":
        shapes += [("mm.input_projection.weight", (VISION_WIDTH, width))]
        return [*shapes, ("mm.soft_emb_norm.weight", (VISION_WIDTH,))]
    return [*shapes, ("mm.model.fc.weight", (width, merged))]


def _block_shapes(tower: str) -> Shapes:
    shapes: Shapes = []
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ln1", "ln2"):
        square = (VISION_WIDTH,) if name.startswith("ln") else (VISION_WIDTH, VISION_WIDTH)
        shapes += [(f"{tower}.blk.0.{name}.weight", square)]
        shapes += [(f"{tower}.blk.0.{name}.bias", (VISION_WIDTH,))]
    for name, dims in (("up", (2, 1)), ("down", (1, 2))):
        rows, columns = (VISION_WIDTH * dim for dim in dims)
        shapes += [(f"{tower}.blk.0.ffn_{name}.weight", (rows, columns))]
        shapes += [(f"{tower}.blk.0.ffn_{name}.bias", (rows,))]
    return shapes


def _write_tensors(writer: gguf.GGUFWriter, shapes: Shapes) -> None:
    random = np.random.default_rng(11)
    for name, dims in shapes:
        writer.add_tensor(name, _values(random, name, dims))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _values(random: np.random.Generator, name: str, dims: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if name.endswith(NORMS):
        return np.ones(dims, np.float32)
    return random.standard_normal(dims).astype(np.float32) * np.float32(0.2)
