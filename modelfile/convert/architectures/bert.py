"""BERT, and RoBERTa and XLM-RoBERTa, whose positions start after that of the padding: embedders and
rerankers.

A reranker keeps its head for one score per text. The heads for masked words and sentence pairs, and
an embedder's head for pooling, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from modelfile.convert.config import Config
from modelfile.convert.decoder import MAX_LAYERS
from modelfile.convert.metadata import MetadataValue, Value, ValueType
from modelfile.convert.plan import ConversionPlan, Weight

_UNUSED: Final = ("embeddings.position_ids", "pooler.", "cls.", "lm_head.")
_TYPES = 2
_RANKS = "ForSequenceClassification"
_BERT_HEAD: Final = {"pooler.dense": "classifier.dense", "classifier": "classifier.out_proj"}


def plan(config: Config) -> ConversionPlan:
    """What a BertModel or BertForSequenceClassification with this config.json holds. Raises
    ConvertError."""
    return _plan(config, "bert.", 0)


def roberta(config: Config) -> ConversionPlan:
    """What a RobertaModel or XLMRobertaModel with this config.json holds, also one
    ForSequenceClassification. Raises ConvertError."""
    return _plan(config, "roberta.", config.integer("pad_token_id", 1) + 1)


def _plan(config: Config, prefix: str, skipped: int) -> ConversionPlan:
    config.one_of("hidden_act", "gelu", "gelu", "gelu_new", "gelu_pytorch_tanh")
    config.one_of("position_embedding_type", "absolute", "absolute")
    if config.flag("is_decoder"):
        config.refuse("is_decoder", "only encoders are supported")
    if config.integer("max_position_embeddings") <= skipped:
        config.refuse("max_position_embeddings", f"expected more than {skipped}")
    ranks = _ranks(config)
    head = _BERT_HEAD if ranks and prefix == "bert." else {}
    return ConversionPlan(
        architecture="bert",
        vocabulary_size=config.integer("vocab_size"),
        block_count=config.integer("num_hidden_layers", maximum=MAX_LAYERS),
        metadata=tuple(_metadata(config, skipped)),
        weights=(*_weights(config, skipped), *(_head(config) if ranks else ())),
        rename=_renamer(prefix, head),
        embeds=True,
        ranks=ranks,
    )


def _ranks(config: Config) -> bool:
    """Whether it is a reranker. Raises ConvertError for one that sorts texts into classes."""
    given = config.values.get("architectures")
    if not isinstance(given, list) or not any(str(name).endswith(_RANKS) for name in given):
        return False
    labels = config.values.get("id2label")
    count = len(labels) if isinstance(labels, dict) else config.integer("num_labels", 2)
    if count != 1:
        config.refuse("id2label", f"{count} classes; only rerankers, with one, are supported")
    return True


def _head(config: Config) -> Iterator[Weight]:
    hidden = config.integer("hidden_size")
    yield from _linear("classifier.dense", hidden, hidden)
    yield from _linear("classifier.out_proj", 1, hidden)


def _metadata(config: Config, skipped: int) -> Iterator[MetadataValue]:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if hidden % heads:
        config.refuse("hidden_size", f"{hidden} is not a multiple of {heads} heads")
    entries: list[tuple[str, ValueType, Value]] = [
        ("context_length", "u32", config.integer("max_position_embeddings") - skipped),
        ("embedding_length", "u32", hidden),
        ("block_count", "u32", config.integer("num_hidden_layers", maximum=MAX_LAYERS)),
        ("feed_forward_length", "u32", config.integer("intermediate_size")),
        ("attention.head_count", "u32", heads),
        ("attention.causal", "bool", False),
        ("attention.layer_norm_epsilon", "f32", config.number("layer_norm_eps", 1e-12)),
        ("vocab_size", "u32", config.integer("vocab_size")),
    ]
    yield MetadataValue(
        "tokenizer.ggml.token_type_count", "u32", config.integer("type_vocab_size", _TYPES)
    )
    for key, kind, value in entries:
        yield MetadataValue(f"bert.{key}", kind, value)


def _weights(config: Config, skipped: int) -> Iterator[Weight]:
    hidden = config.integer("hidden_size")
    positions = config.integer("max_position_embeddings")
    types = config.integer("type_vocab_size", _TYPES)
    yield Weight("embeddings.word_embeddings.weight", (config.integer("vocab_size"), hidden))
    yield Weight("embeddings.token_type_embeddings.weight", (types, hidden))
    yield Weight("embeddings.position_embeddings.weight", (positions, hidden), skipped_rows=skipped)
    yield from _norm("embeddings.LayerNorm", hidden)
    for number in range(config.integer("num_hidden_layers", maximum=MAX_LAYERS)):
        yield from _layer(f"encoder.layer.{number}.", hidden, config.integer("intermediate_size"))


def _layer(layer: str, hidden: int, wide: int) -> Iterator[Weight]:
    for name in ("query", "key", "value"):
        yield from _linear(f"{layer}attention.self.{name}", hidden, hidden)
    yield from _linear(f"{layer}attention.output.dense", hidden, hidden)
    yield from _norm(f"{layer}attention.output.LayerNorm", hidden)
    yield from _linear(f"{layer}intermediate.dense", wide, hidden)
    yield from _linear(f"{layer}output.dense", hidden, wide)
    yield from _norm(f"{layer}output.LayerNorm", hidden)


def _linear(name: str, rows: int, columns: int) -> Iterator[Weight]:
    yield Weight(f"{name}.weight", (rows, columns))
    yield Weight(f"{name}.bias", (rows,))


def _norm(name: str, width: int) -> Iterator[Weight]:
    yield Weight(f"{name}.weight", (width,))
    yield Weight(f"{name}.bias", (width,))


def _renamer(prefix: str, head: Mapping[str, str]) -> Callable[[str], str | None]:
    def rename(name: str) -> str | None:
        short = name.removeprefix(prefix)
        stem, _, last = short.rpartition(".")
        if stem not in head and short.startswith(_UNUSED):
            return None
        return f"{head.get(stem, stem)}.{ {'gamma': 'weight', 'beta': 'bias'}.get(last, last) }"

    return rename


PLANS = {"bert": plan, "roberta": roberta, "xlm-roberta": roberta}
