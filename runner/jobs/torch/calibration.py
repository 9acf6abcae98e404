"""Quantizes a model layer by layer, or thins it out: a text goes through a layer, its maps are
changed by what came in, and what the changed layer gives goes into the next one.

Knows the methods and no file. Source: the order is that of GPTQ's code; AWQ scales what comes
before a map, where that is linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from modelfile.errors import ConvertError
from registry.errors import shown
from runner.backends.torch.config import DecoderShape
from runner.backends.torch.layers.decoder import (
    Decoder,
    GatedFeedForward,
    PreNormLayer,
    SandwichLayer,
)
from runner.backends.torch.layers.linear import RmsNorm
from runner.jobs.torch.awq import awq, column_scales
from runner.jobs.torch.calibrated_loader import Observed, ObservedLinear
from runner.jobs.torch.evaluation import chunk_step
from runner.jobs.torch.gptq import Int4Numbers, gptq
from runner.jobs.torch.hessian import InputStatistics
from runner.jobs.torch.sparsity import SparseNumbers, sparsify

Tensor = Any
Method = Literal["gptq", "awq", "wanda", "magnitude"]
State = tuple[Tensor, Tensor | None]  # what goes into a layer


@dataclass(frozen=True, slots=True)
class QuantizedMap:
    """A map that is quantized: its name without ".weight" and its bias [outputs]."""

    name: str
    weight: Int4Numbers | SparseNumbers
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a model is quantized; chunks int32 [tokens] each, from the text: none for magnitude."""

    method: Method
    group: int
    chunks: Sequence[Any]


def quantize_layers(
    model: Decoder,
    observed: Observed,
    shape: DecoderShape,
    wanted: Calibration,
    report: Callable[[int, int], None],
) -> Iterator[list[QuantizedMap]]:
    """The quantized maps of one layer after the other; the model's norms are changed where the
    method asks for that. report: layers done, of all."""
    step = chunk_step(shape, len(wanted.chunks[0]) if wanted.chunks else 1)
    states: list[State] = [
        (model.embedding(torch.from_numpy(chunk).long()), None) for chunk in wanted.chunks
    ]
    for number, layer in enumerate(model.layers):
        report(number, len(model.layers))
        maps = observed.of_layer(number)
        for one in maps if states else ():
            one.observe()
        for x, residual in states:
            layer(x, residual, step)
        if wanted.method == "awq":
            scale_layer(layer, wanted.group)
        done: list[QuantizedMap] = []
        for one in maps:
            done += _quantized(one, wanted)
        yield done
        states = [layer(x, residual, step) for x, residual in states]
        for one in maps:
            one.weights.clear()  # as floats they are as large as the file
    report(len(model.layers), len(model.layers))


def _quantized(linear: ObservedLinear, wanted: Calibration) -> Iterable[QuantizedMap]:
    """The map's parts quantized; from then on it computes with them."""
    inputs, linear.inputs = linear.inputs, None
    cut = len(linear.weights) != 3  # AutoAWQ leaves queries and keys whole
    for at, (name, weight) in enumerate(zip(linear.names, linear.weights, strict=True)):
        found: Int4Numbers | SparseNumbers
        floats = weight.float()
        if not bool(floats.isfinite().all()):
            raise ConvertError(f"{shown(name)} has weights that are infinite or no numbers")
        if inputs is None or wanted.method == "wanda":
            found = sparsify(floats, inputs)
        elif wanted.method == "gptq":
            found = gptq(floats, inputs, wanted.group)
        else:
            found = awq(floats, inputs, wanted.group, cut=cut)
        linear.weights[at] = found.dense
        yield QuantizedMap(name, found, linear.biases[at])


def scale_layer(layer: Any, group: int) -> None:
    """Scales the columns of the layer's maps as AWQ finds best, and what comes before them by the
    inverse: the layer computes the same."""
    assert isinstance(layer, PreNormLayer | SandwichLayer)
    attention, feed_forward = layer.attention, layer.feed_forward
    assert isinstance(feed_forward, GatedFeedForward)
    gate_up, down = _observed(feed_forward.gate_up), _observed(feed_forward.down)
    projections, output = _observed(attention.projections), _observed(attention.output)
    found = [
        (linear, column_scales([w.float() for w in linear.weights], _known(linear), group))
        for linear in (projections, gate_up, output, down)
    ]
    by_map = {id(linear): scales for linear, scales in found}
    _divide_norm(layer.input_norm, by_map[id(projections)])
    _multiply(projections, by_map[id(projections)])
    _divide_norm(layer.feed_forward_norm, by_map[id(gate_up)])
    _multiply(gate_up, by_map[id(gate_up)])
    _divide_rows(gate_up, by_map[id(down)])
    _multiply(down, by_map[id(down)])
    if attention.shape.heads == attention.shape.heads_kv:
        _divide_rows(projections, by_map[id(output)])
        _multiply(output, by_map[id(output)])


def _multiply(linear: ObservedLinear, scales: Tensor) -> None:
    linear.weights = [weight.float() * scales for weight in linear.weights]
    linear.inputs = _known(linear).divided(scales)


def _divide_norm(norm: RmsNorm, scales: Tensor) -> None:
    norm.weight.add_(norm.offset).div_(scales).sub_(norm.offset)


def _divide_rows(linear: ObservedLinear, scales: Tensor) -> None:
    """The last rows of a map, as many as there are scales: values, or what gates multiply."""
    weight, bias = linear.weights[-1].float(), linear.biases[-1]
    rows = torch.ones(len(weight))
    rows[-len(scales) :] = scales
    linear.weights[-1] = weight / rows[:, None]
    linear.biases[-1] = None if bias is None else bias / rows


def _observed(linear: Any) -> ObservedLinear:
    assert isinstance(linear, ObservedLinear)
    return linear


def _known(linear: ObservedLinear) -> InputStatistics:
    assert linear.inputs is not None
    return linear.inputs
