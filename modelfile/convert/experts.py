"""Mixture of experts: the router and the feed-forwards that llama.cpp wants stacked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelfile.convert.config import Config
from modelfile.convert.decoder import MAX_EXPERTS
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import Weight


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a layer. used: for each token; feed_forward: the width of one."""

    count: int
    used: int
    hidden: int
    feed_forward: int


def read_experts(config: Config, count_key: str, width_key: str, count: int | None) -> Experts:
    """The experts that config.json describes. count: where it does not say. Raises
    ConvertError."""
    found = Experts(
        config.integer(count_key, count, maximum=MAX_EXPERTS),
        config.integer("num_experts_per_tok", maximum=MAX_EXPERTS),
        config.integer("hidden_size"),
        config.integer(width_key),
    )
    if found.used > found.count:
        config.refuse("num_experts_per_tok", f"{found.used}, but there are {found.count} experts")
    return found


def expert_metadata(experts: Experts, architecture: str) -> tuple[MetadataValue, ...]:
    """The keys that llama.cpp reads."""
    return (
        MetadataValue(f"{architecture}.expert_count", "u32", experts.count),
        MetadataValue(f"{architecture}.expert_used_count", "u32", experts.used),
    )


def expert_weights(prefix: str, names: tuple[str, str, str], experts: Experts) -> Iterator[Weight]:
    """Router and experts of one layer. prefix: of the block; names: of the gate, up and down
    projections of an expert."""
    yield Weight(f"{prefix}gate.weight", (experts.count, experts.hidden))
    wide, narrow = (experts.feed_forward, experts.hidden), (experts.hidden, experts.feed_forward)
    for name, merged, shape in zip(
        names, ("gate", "up", "down"), (wide, wide, narrow), strict=True
    ):
        layer = prefix.rpartition(".layers.")[2].partition(".")[0]
        yield Weight(
            f"model.layers.{layer}.mlp.experts.{merged}_proj.weight",
            shape,
            sources=tuple(
                f"{prefix}experts.{number}.{name}.weight" for number in range(experts.count)
            ),
        )
