"""The options of a request: the Modelfile's parameters under the request's own.

Everything is in the Modelfile's words (num_ctx, temperature, ...), whatever surface it came
from. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from modelfile import parameters as table
from modelfile.biases import biases
from modelfile.errors import ModelfileError
from runner.errors import InvalidRequest, Unsupported
from runner.types import SamplingParams

# The options that are SamplingParams as they stand; seed and logit_bias are not
SAMPLING_OPTIONS = tuple(
    item.name
    for item in fields(SamplingParams)
    if item.name in table.PARAMETERS and item.name not in ("seed", "logit_bias")
)


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What decides how one answer is generated."""

    sampling: SamplingParams
    max_tokens: int | None
    stop: tuple[str, ...]


def check_options(given: Mapping[str, Any] | None, **named: Any) -> dict[str, Any]:
    """given and those of named that are not None, which win. Raises InvalidRequest naming an option
    that has the wrong type or is out of range, and Unsupported for one that would change the answer
    and is known from other servers; other names that are no option are dropped, as Ollama does."""
    checked: dict[str, Any] = {}
    set_apart = {name: value for name, value in named.items() if value is not None}
    for name, value in {**(given or {}), **set_apart}.items():
        if value is not None and name in table.UNSUPPORTED:
            raise Unsupported(f"the option {name} is not supported", param=name)
        if value is None or name not in table.PARAMETERS or (name == "stop" and not value):
            continue
        try:
            checked[name] = table.validate(name, value)
        except ModelfileError as error:
            raise InvalidRequest(str(error), param=name) from None
    return checked


def generation_options(
    parameters: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    logit_bias: tuple[tuple[int, float], ...] = (),
    logprobs: int | None = None,
    sampled_penalties: bool = False,
    drawn_logprobs: bool = False,
) -> GenerationOptions:
    """The options of one answer. given is checked; its stop strings are added to the
    Modelfile's, which usually mark the end of a turn and must not leak into an answer."""
    merged = {**parameters, **given}
    seed = merged.get("seed")
    num_predict = merged.get("num_predict")
    biased = biases(merged.get("logit_bias") or ())
    by_id = tuple((token, bias) for token, bias in biased if isinstance(token, int))
    sampling = SamplingParams(
        **{name: merged[name] for name in SAMPLING_OPTIONS if merged.get(name) is not None},
        seed=None if seed is None or seed < 0 else seed,
        logit_bias=(*by_id, *logit_bias),
        text_bias=tuple((text, bias) for text, bias in biased if isinstance(text, str)),
        logprobs=logprobs,
        sampled_penalties=sampled_penalties,
        drawn_logprobs=drawn_logprobs,
    )
    return GenerationOptions(
        sampling=sampling,
        max_tokens=None if num_predict is None or num_predict < 0 else num_predict,
        stop=stop_strings(parameters.get("stop"), given.get("stop")),
    )


def stop_strings(*groups: Any) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for group in groups:
        for stop in (group,) if isinstance(group, str) else tuple(group or ()):
            if stop:
                found[stop] = None
    return tuple(found)
