"""The engine's sampling parameters as fields of OpenAI requests, which other local servers take
at the top level too. Their types and ranges are those of PARAMETER, checked with the options."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from runner.errors import Unsupported
from runner.server.request_body import WireModel

_FOREIGN = ("use_beam_search", "min_tokens", "stop_token_ids", "bad_words", "allowed_token_ids",
            "include_stop_str_in_output", "truncate_prompt_tokens")  # fmt: skip

Finite = Annotated[float, Field(allow_inf_nan=False)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]  # lower goes first; live requests have 0
Salt = Annotated[str, Field(min_length=1, max_length=256)]


class SamplingFields(WireModel):
    """OpenAI's, and those of other servers; null means not given."""

    temperature: Finite | None = None
    top_p: Finite | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_k: int | None = None
    min_p: Finite | None = None
    typical_p: Finite | None = None
    num_ctx: int | None = None
    logit_bias: dict[str, Finite] | list[Any] | None = None

    top_n_sigma: Any = None
    xtc_probability: Any = None
    xtc_threshold: Any = None
    mirostat: Any = None
    mirostat_tau: Any = None
    mirostat_eta: Any = None
    repeat_last_n: Any = None
    dry_multiplier: Any = None
    dry_base: Any = None
    dry_allowed_length: Any = None
    dry_penalty_last_n: Any = None
    dry_sequence_breakers: Any = None
    dynatemp_range: Any = None
    dynatemp_exponent: Any = None

    use_beam_search: Any = None
    min_tokens: Any = None
    stop_token_ids: Any = None
    bad_words: Any = None
    allowed_token_ids: Any = None
    include_stop_str_in_output: Any = None
    truncate_prompt_tokens: Any = None

    def sampling_options(self) -> dict[str, Any]:
        """Those given, by the names that PARAMETER has for them."""
        names = (name for name in SamplingFields.model_fields if name not in _FOREIGN)
        given = {name: getattr(self, name) for name in names}
        if isinstance(self.logit_bias, dict):
            del given["logit_bias"]  # OpenAI's form: see id_bias
        return {name: value for name, value in given.items() if value is not None}

    def refuse_foreign(self) -> None:
        """Raises Unsupported for what other servers take, is not done here and would change the
        answer."""
        for name in _FOREIGN:
            if getattr(self, name):
                raise Unsupported(f"{name} is not supported", param=name)

    @property
    def id_bias(self) -> dict[str, float]:
        """logit_bias as OpenAI has it: by token ids. The form of a list is among the options."""
        return self.logit_bias if isinstance(self.logit_bias, dict) else {}


def think_of_effort(effort: Effort | None) -> bool | str | None:
    """Whether the model shall reason, and how much; None: as its template has it."""
    return False if effort == "none" else {"xhigh": "max"}.get(effort or "", effort)
