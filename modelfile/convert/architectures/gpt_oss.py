"""gpt-oss: GptOssForCausalLM. Its experts are published as MXFP4 and stay so
(prequantized.py): there is no conversion to floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    DecoderShape,
    attention_biases,
    decoder_plan,
    read_decoder_shape,
    usual_layer,
)
from modelfile.convert.experts import Experts, expert_metadata, read_experts
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan, Weight

_HEAD, _WINDOW = 64, 128
_BASE, _EPSILON = 150000.0, 1e-5


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    shape = read_decoder_shape(config, head=_HEAD)
    experts = read_experts(config, "num_local_experts", "intermediate_size", None)
    window = config.integer("sliding_window", _WINDOW)
    own = (
        MetadataValue("gpt-oss.expert_feed_forward_length", "u32", experts.feed_forward),
        MetadataValue("gpt-oss.attention.sliding_window", "u32", window),
    )
    biased = config.flag("attention_bias", default=True)

    def inside(layer: str, shape: DecoderShape) -> Iterator[Weight]:
        if biased:
            yield from attention_biases(layer, shape, output=True)
        yield Weight(f"{layer}self_attn.sinks", (shape.heads,))

    feed = partial(_experts, experts=experts)
    return decoder_plan(
        config,
        shape,
        "gpt-oss",
        usual_layer(shape, inside, feed=feed),
        metadata=(*expert_metadata(experts, "gpt-oss"), *own),
        base=_BASE,
        epsilon=_EPSILON,
        expert_count=experts.count,
    )


def _experts(layer: str, experts: Experts) -> Iterator[Weight]:
    """The router and the stacks, as Hugging Face names and turns them."""
    count, hidden, width = experts.count, experts.hidden, experts.feed_forward
    yield Weight(f"{layer}mlp.router.weight", (count, hidden))
    yield Weight(f"{layer}mlp.router.bias", (count,))
    for name, inputs, outputs in (("gate_up", hidden, 2 * width), ("down", width, hidden)):
        yield Weight(f"{layer}mlp.experts.{name}_proj", (count, inputs, outputs))
        yield Weight(f"{layer}mlp.experts.{name}_proj_bias", (count, outputs))


ONLY_PREQUANTIZED = {"gpt_oss": plan}
