"""How a student begins: with layers of a teacher of the same kind and width, as DistilBERT did
(Sanh et al. 2019), whose feed-forwards are cut to its size.

Of a feed-forward, the inner values that count most on a sample of the text are kept, and its output
map makes up for the others by least squares, as in LLM Surgeon and ZipLM (Kurtic et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from registry.formats.gguf import GgufHeader
from runner.backends.torch.loading.gguf_tensors import StoredTensors
from runner.jobs.distillation.network import Block, FeedForward, Student
from runner.jobs.distillation.student import Shape
from runner.jobs.distillation.student_file import ARCHITECTURE, BLOCK_TENSORS
from runner.jobs.torch.hessian import InputStatistics

SAMPLE_TOKENS: Final = 16_384
_DAMPING: Final = 1e-3  # of the mean of the diagonal


def begins_as(shape: Shape, teacher: GgufHeader) -> bool:
    """Whether the student can have layers of the teacher: a Llama of its width and heads, and no
    smaller."""
    layers, wide = teacher.block_count or 0, _feed_forward(teacher)
    sizes = (teacher.embedding_length, teacher.head_count, teacher.head_count_kv)
    return (
        teacher.architecture == ARCHITECTURE
        and not teacher.expert_count
        and sizes == (shape.width, shape.heads, shape.key_value_heads)
        and teacher.key_length == shape.head_width
        and layers >= shape.layers
        and wide >= shape.feed_forward
    )


def begin_as(
    student: Student,
    shape: Shape,
    teacher: GgufHeader,
    sample: Sequence[Tensor],
    report: Callable[[int, int], None],
) -> None:
    """Give a student that begins_as() allows the teacher's embeddings and evenly spaced layers.
    sample: tokens int64 [n] of documents, which go through the teacher where it has wider
    feed-forwards. report: layers done, of all."""
    stored = StoredTensors(teacher)

    def read(name: str) -> Tensor:
        found: Tensor = stored.floats(f"{name}.weight").float()
        return found

    layers, wide = teacher.block_count or 0, _feed_forward(teacher)
    chosen = np.linspace(0, layers - 1, shape.layers).round().astype(int).tolist()
    with torch.no_grad():
        student.token.weight.copy_(read("token_embd"))
        student.norm.weight.copy_(read("output_norm"))
        narrows = wide > shape.feed_forward
        states = [student.token.weight[each][None] for each in sample if narrows]
        for number in range(layers):
            report(number, layers)
            if not narrows and number not in chosen:
                continue
            block = Block(replace(shape, feed_forward=wide))
            for ours, theirs in BLOCK_TENSORS.items():
                block.get_parameter(ours).copy_(read(f"blk.{number}.{theirs}"))
            if narrows:
                states, inputs = _through(block, states, student.turns)
                if number in chosen:
                    _narrow(block.feed_forward, inputs, shape.feed_forward)
            if number in chosen:
                student.blocks[chosen.index(number)].load_state_dict(block.state_dict())
    report(layers, layers)


def _feed_forward(teacher: GgufHeader) -> int:
    wide = teacher.metadata.get(f"{ARCHITECTURE}.feed_forward_length")
    return wide if isinstance(wide, int) else 0


def _through(
    block: Block, states: Sequence[Tensor], turns: Tensor
) -> tuple[list[Tensor], InputStatistics]:
    """What comes out of a block, and what came into the output map of its feed-forward."""
    width = block.feed_forward.down.in_features
    inputs = InputStatistics(torch.zeros(width, width), torch.zeros(width))
    watched = block.feed_forward.down.register_forward_pre_hook(
        lambda _module, given: inputs.add(given[0][0])
    )
    found = [block(x, turns[: x.shape[1]]) for x in states]
    watched.remove()
    return found, inputs


def _narrow(part: FeedForward, inputs: InputStatistics, rows: int) -> None:
    """Keep so many inner values: those of which most goes into the outputs."""
    down, products = part.down.weight, inputs.products.clone()
    kept = (products.diagonal() * down.square().sum(0)).topk(rows).indices.sort().values
    products.diagonal().add_(_DAMPING * products.diagonal().mean().clamp_min(1e-12))
    factor = torch.linalg.cholesky(products[kept][:, kept])
    fitted = torch.cholesky_solve(products[kept] @ down.t(), factor).t()
    for linear, weight in (
        (part.gate, part.gate.weight[kept]),
        (part.up, part.up.weight[kept]),
        (part.down, fitted.contiguous()),
    ):
        linear.weight = nn.Parameter(weight)
