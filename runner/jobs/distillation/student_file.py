"""A student's weights, written as a GGUF file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from torch import Tensor

from registry.formats.gguf import GgufHeader
from runner.jobs.distillation.network import ModelSizes, Student
from runner.jobs.distillation.student import Shape

ARCHITECTURE: Final = "llama"
BLOCK_TENSORS: Final = {
    "attention_norm.weight": "attn_norm",
    "attention.query.weight": "attn_q",
    "attention.key.weight": "attn_k",
    "attention.value.weight": "attn_v",
    "attention.output.weight": "attn_output",
    "feed_forward_norm.weight": "ffn_norm",
    "feed_forward.gate.weight": "ffn_gate",
    "feed_forward.up.weight": "ffn_up",
    "feed_forward.down.weight": "ffn_down",
}


def write_student(student: Student, shape: Shape, teacher: GgufHeader, target: Path) -> None:
    """Write it with the teacher's vocabulary and template, matrices in F16. target appears when it
    is whole. Raises OSError."""
    part = target.with_suffix(".part")
    writer = gguf.GGUFWriter(part, ARCHITECTURE)
    writer.add_name(f"student of {teacher.metadata.get('general.name') or teacher.architecture}")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_sizes(writer, shape)
    _copy_vocabulary(writer, teacher.path)
    for name, weight in _tensors(student).items():
        values = weight.detach().float().numpy()
        writer.add_tensor(name, values if values.ndim == 1 else values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, target)


def add_sizes(writer: gguf.GGUFWriter, shape: ModelSizes) -> None:
    """The metadata that tell a Llama's sizes."""
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_value_heads)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_vocab_size(shape.vocabulary)


def _tensors(student: Student) -> dict[str, Tensor]:
    """By the names of GGUF files; without an output matrix, which is the embedding."""
    found = {"token_embd.weight": student.token.weight, "output_norm.weight": student.norm.weight}
    for index, block in enumerate(student.blocks):
        for ours, theirs in BLOCK_TENSORS.items():
            found[f"blk.{index}.{theirs}.weight"] = block.get_parameter(ours)
    return found


def _copy_vocabulary(writer: gguf.GGUFWriter, teacher: Path) -> None:
    for field in gguf.GGUFReader(teacher).fields.values():
        if field.name.startswith("tokenizer."):
            kind, item = field.types[0], field.types[-1]
            value: Any = field.contents()
            is_array = kind is gguf.GGUFValueType.ARRAY
            writer.add_key_value(field.name, value, kind, item if is_array else None)
