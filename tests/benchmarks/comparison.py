"""One figure of hearth beside the figure it is held against, and the target of their ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Bound = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class RatioTarget:
    """What must be reached: a bound on the ratio, or on hearth's own figure."""

    bound: Bound
    value: float

    def met(self, figure: float) -> bool:
        """Whether figure reaches the target."""
        return figure >= self.value if self.bound == "at least" else figure <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.bound == 'at least' else '≤'} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The medians of both sides over all rounds. ratio is the median of the rounds' ratios:
    the sides of one round ran next to each other, so what disturbs the machine hits both.
    Without another side the target is for hearth's figure itself."""

    name: str
    unit: str
    hearth: float
    other_name: str | None = None
    other: float | None = None
    ratio: float | None = None
    target: RatioTarget | None = None
    rounds: int = 1

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None when there is none."""
        figure = self.hearth if self.ratio is None else self.ratio
        return None if self.target is None else self.target.met(figure)


def compare(
    name: str,
    unit: str,
    hearth: Sequence[float],
    other: tuple[str, Sequence[float]],
    target: RatioTarget | None = None,
) -> Comparison:
    """The comparison of figures taken in the same rounds. Needs at least one round."""
    other_name, others = other
    ratios = [own / theirs for own, theirs in zip(hearth, others, strict=True)]
    return Comparison(
        name=name,
        unit=unit,
        hearth=median(hearth),
        other_name=other_name,
        other=median(others),
        ratio=median(ratios),
        target=target,
        rounds=len(ratios),
    )


def alone(name: str, unit: str, figures: Sequence[float], target: RatioTarget | None) -> Comparison:
    """A figure of hearth's with a target of its own."""
    return Comparison(name, unit, median(figures), target=target, rounds=len(figures))
