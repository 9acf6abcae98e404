"""The engine's sampling parameters as fields of OpenAI requests, which other local servers take
at the top level too. Their types and ranges are those of PARAMETER, checked with the options."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from runner.models.options import SAMPLING_OPTIONS
from runner.server.request_body import WireModel

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]  # lower goes first; live requests have 0
Salt = Annotated[str, Field(min_length=1, max_length=256)]


def _with_sampling_options(model: type[WireModel]) -> type[WireModel]:
    """model with a field for each sampling option that it does not declare itself."""
    missing = [name for name in SAMPLING_OPTIONS if name not in model.model_fields]
    fields: dict[str, Any] = dict.fromkeys(missing, (Any, None))
    return create_model(
        model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
    )


@_with_sampling_options
class SamplingFields(WireModel):
    """OpenAI's, and those of other servers; null means not given. Here are those whose form the
    wire decides."""

    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    num_ctx: int | None = None
    logit_bias: dict[str, float] | list[Any] | None = None

    def sampling_options(self) -> dict[str, Any]:
        """Those given, by the names that PARAMETER has for them."""
        given = {name: getattr(self, name) for name in SamplingFields.model_fields}
        if isinstance(self.logit_bias, dict):  # OpenAI's form: see id_bias
            by_text = {key: bias for key, bias in self.logit_bias.items() if not _is_id(key)}
            given["logit_bias"] = by_text or None
        return {name: value for name, value in given.items() if value is not None}

    @property
    def id_bias(self) -> dict[str, float]:
        """logit_bias as OpenAI has it: by token ids. Texts, and the form of a list, are among the
        options."""
        given = self.logit_bias if isinstance(self.logit_bias, dict) else {}
        return {key: bias for key, bias in given.items() if _is_id(key)}


def _is_id(key: str) -> bool:
    """Whether a key of logit_bias is a token's id, be it a wrong one, and not a text."""
    return key.removeprefix("-").isdigit()


def think_of_effort(effort: Effort | None) -> bool | str | None:
    """Whether the model shall reason, and how much; None: as its template has it."""
    return False if effort == "none" else {"xhigh": "max"}.get(effort or "", effort)


class ChatReasoning(WireModel):
    """reasoning, as OpenRouter writes it: how much, and whether it is shown."""

    effort: Effort | None = None
    max_tokens: int | None = Field(None, ge=0)
    enabled: bool | None = None
    exclude: bool | None = None

    @property
    def think(self) -> bool | str | None:
        """Whether the model shall reason, and how much; None: as its template has it."""
        effort = think_of_effort(self.effort)
        if effort is not None:
            return effort
        return True if self.enabled is None and self.max_tokens else self.enabled
