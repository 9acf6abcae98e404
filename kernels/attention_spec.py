"""What an attention's scores go through: scale, soft cap, window, sinks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """scale multiplies the scores; softcap: cap * tanh(score / cap); window: how many tokens, its
    own included, a token sees (without causal: on either side); sinks [H]: scores without value."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    causal: bool = True

    def window_hides(self, context: int) -> bool:
        """Whether the window hides anything of so many tokens."""
        return self.window is not None and self.window < context
