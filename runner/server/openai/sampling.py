"""The engine's sampling parameters as fields of OpenAI requests, which other local servers take
at the top level too. Their types and ranges are those of PARAMETER, checked with the options."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from runner.server.exchange import WireModel

Finite = Annotated[float, Field(allow_inf_nan=False)]


class SamplingFields(WireModel):
    """Beyond OpenAI's own; null means not given."""

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

    def sampling_options(self) -> dict[str, Any]:
        """Those given, by the names that PARAMETER has for them."""
        given = {name: getattr(self, name) for name in SamplingFields.model_fields}
        if isinstance(self.logit_bias, dict):
            del given["logit_bias"]  # OpenAI's form: see id_bias
        return {name: value for name, value in given.items() if value is not None}

    @property
    def id_bias(self) -> dict[str, float]:
        """logit_bias as OpenAI has it: by token ids. The form of a list is among the options."""
        return self.logit_bias if isinstance(self.logit_bias, dict) else {}
