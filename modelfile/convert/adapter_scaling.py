"""How PEFT scales what each pair of matrices adds, by adapter_config.json: lora_alpha,
alpha_pattern, r, rank_pattern, use_rslora.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from modelfile.convert.config import Config
from registry.errors import shown

MAX_RANK: Final = 1 << 14
# What a regular expression's time grows with. Expressions come with adapters of strangers.
_MAX_KEY: Final = 256
_MAX_REPETITIONS: Final = 3
_MAX_GROUPS: Final = 3
_REPEATED_GROUP: Final = re.compile(r"\)[*+?{]")


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Values for the modules whose names, or ends of names after a dot, the expressions match:
    the first one counts."""

    values: Mapping[re.Pattern[str], float]

    def get(self, module: str, default: float) -> float:
        for pattern, value in self.values.items():
            if pattern.match(module):
                return value
        return default


@dataclass(frozen=True, slots=True)
class AdapterScaling:
    """Of one adapter."""

    config: Config
    alpha: float
    rank: int | None  # None: the config does not say
    alphas: _Patterns
    ranks: _Patterns
    stabilized: bool

    def alpha_of(self, module: str, rank: int) -> float:
        """A module's alpha, to be divided by its rank, that of its matrices. Raises ConvertError
        where the config has another rank for it, with which PEFT would not load them."""
        wanted = self.ranks.get(module, rank if self.rank is None else self.rank)
        if wanted != rank:
            self.config.refuse("r", f"{wanted:g} for {shown(module)}, whose matrices have {rank}")
        alpha = self.alphas.get(module, self.alpha)
        return alpha * math.sqrt(rank) if self.stabilized else alpha


def read_scaling(config: Config) -> AdapterScaling:
    """What adapter_config.json says. Raises ConvertError."""
    alpha = config.number("lora_alpha", 8.0)
    if alpha <= 0:
        config.refuse("lora_alpha", f"{alpha:g}, expected more than 0")
    rank = None if config.values.get("r") is None else config.integer("r", maximum=MAX_RANK)
    ranks = config.group("rank_pattern")
    alphas = config.group("alpha_pattern")
    return AdapterScaling(
        config,
        alpha,
        rank,
        _Patterns({_compiled(alphas, key): _positive(alphas, key) for key in alphas.values}),
        _Patterns(
            {_compiled(ranks, key): ranks.integer(key, maximum=MAX_RANK) for key in ranks.values}
        ),
        config.flag("use_rslora"),
    )


def _positive(alphas: Config, key: str) -> float:
    alpha = alphas.number(key)
    if alpha <= 0:
        alphas.refuse(key, f"{alpha:g}, expected more than 0")
    return alpha


def _compiled(group: Config, key: str) -> re.Pattern[str]:
    """What PEFT's get_pattern_key() matches with a key."""
    repetitions = sum(map(key.count, "*+?{"))
    if len(key) > _MAX_KEY or repetitions > _MAX_REPETITIONS or key.count("(") > _MAX_GROUPS:
        group.refuse(
            shown(key),
            f"expected at most {_MAX_KEY} characters, {_MAX_REPETITIONS} repetitions and"
            f" {_MAX_GROUPS} groups",
        )
    if _REPEATED_GROUP.search(key):
        group.refuse(shown(key), "a repeated group is not supported")
    try:
        return re.compile(rf"(.*\.)?({key})$")
    except re.error as error:
        group.refuse(shown(key), f"is not a regular expression: {error}")
