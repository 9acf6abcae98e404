"""Llama 2 and 3: LlamaForCausalLM. Mistral: MistralForCausalLM, which llama.cpp runs as a Llama."""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    attention,
    attention_biases,
    check_activation,
    decoder_plan,
    feed_forward,
    norm,
    read_decoder_shape,
)
from modelfile.convert.plan import ConversionPlan, Weight
from modelfile.convert.rope import llama3_frequencies, rope_base


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    shape = read_decoder_shape(config)

    def layer_weights(layer: str) -> Iterator[Weight]:
        yield norm(layer, "input_layernorm", shape.hidden)
        yield from attention(layer, shape, interleaved=True)
        if config.flag("attention_bias"):
            yield from attention_biases(layer, shape, interleaved=True, output=True)
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield from feed_forward(layer, shape)
        if config.flag("mlp_bias"):
            for name in ("gate", "up"):
                yield Weight(f"{layer}mlp.{name}_proj.bias", (shape.feed_forward,))
            yield Weight(f"{layer}mlp.down_proj.bias", (shape.hidden,))

    frequencies = llama3_frequencies(config, shape.head, rope_base(config, 10000.0))
    return decoder_plan(config, shape, "llama", layer_weights, computed=frequencies)


PLANS = {"llama": plan, "mistral": plan}
