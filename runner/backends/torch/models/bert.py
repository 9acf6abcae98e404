"""BERT: BertModel, an embedder. The heads for guessing words and pairs are left out."""

from __future__ import annotations

from functools import partial

from torch.nn import functional

from runner.backends.torch.config import Config, ModelConfig
from runner.backends.torch.layers.encoder import Activation, Encoder, EncoderLayer, LayerNorm
from runner.backends.torch.loading.weights import WeightLoader

_EPSILON, _KINDS = 1e-12, 2
_UNUSED = ("embeddings.position_ids", "pooler.", "cls.", "lm_head.")
_TANH = ("gelu_new", "gelu_pytorch_tanh")


def build(config: ModelConfig, weights: WeightLoader) -> Encoder:
    """The encoder of config. Raises ConvertError, ModelLoadFailed."""
    return encoder(config, weights, "bert.", skipped=0)


def encoder(config: ModelConfig, weights: WeightLoader, prefix: str, skipped: int) -> Encoder:
    """A BERT whose names may begin with prefix. skipped: rows of the positions before that of the
    first token. Raises ConvertError, ModelLoadFailed."""
    values, shape = config.values, config.shape
    values.one_of("position_embedding_type", "absolute", "absolute")
    if values.flag("is_decoder"):
        values.refuse("is_decoder", "only encoders are supported")
    positions = values.integer("max_position_embeddings")
    if positions <= skipped:
        values.refuse("max_position_embeddings", f"{positions}, expected more than {skipped}")
    kinds = values.integer("type_vocab_size", _KINDS)
    own = prefix if weights.has(f"{prefix}embeddings.word_embeddings.weight") else ""
    weights.ignore(*(start + name for start in (own, "") for name in _UNUSED))
    stem = f"{own}embeddings."
    epsilon = values.number("layer_norm_eps", _EPSILON)
    return Encoder(
        word_embeddings=weights.tensor(
            f"{stem}word_embeddings.weight", shape.vocabulary, shape.hidden
        ),
        position_embeddings=weights.tensor(
            f"{stem}position_embeddings.weight", positions, shape.hidden
        )[skipped:],
        token_type_embedding=weights.tensor(
            f"{stem}token_type_embeddings.weight", kinds, shape.hidden
        )[0],
        norm=_norm(weights, f"{stem}LayerNorm", shape.hidden, epsilon),
        layers=[
            _layer(config, weights, f"{own}encoder.layer.{number}.", epsilon)
            for number in range(shape.layers)
        ],
    )


def _layer(config: ModelConfig, weights: WeightLoader, prefix: str, epsilon: float) -> EncoderLayer:
    hidden, wide = config.shape.hidden, config.shape.feed_forward
    attention = f"{prefix}attention."
    maps = [(f"{attention}self.{name}", hidden) for name in ("query", "key", "value")]
    return EncoderLayer(
        head=config.shape.head,
        projections=weights.stacked(maps, hidden, bias=True),
        attention_output=weights.linear(f"{attention}output.dense", hidden, hidden, bias=True),
        attention_norm=_norm(weights, f"{attention}output.LayerNorm", hidden, epsilon),
        inner=weights.linear(f"{prefix}intermediate.dense", hidden, wide, bias=True),
        output=weights.linear(f"{prefix}output.dense", wide, hidden, bias=True),
        output_norm=_norm(weights, f"{prefix}output.LayerNorm", hidden, epsilon),
        activation=_activation(config.values),
    )


def _norm(weights: WeightLoader, name: str, width: int, epsilon: float) -> LayerNorm:
    """A norm, whose weight and bias the oldest checkpoints call gamma and beta."""
    names = ("gamma", "beta") if weights.has(f"{name}.gamma") else ("weight", "bias")
    weight, bias = (weights.tensor(f"{name}.{part}", width) for part in names)
    return LayerNorm(weight, bias, epsilon)


def _activation(values: Config) -> Activation:
    token_type_embedding = values.one_of("hidden_act", "gelu", "gelu", "relu", *_TANH)
    if token_type_embedding == "relu":
        relu: Activation = functional.relu
        return relu
    return partial(functional.gelu, approximate="tanh" if token_type_embedding in _TANH else "none")
