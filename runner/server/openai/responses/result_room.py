"""How much of a model's context the results of calls may fill in one response."""

from __future__ import annotations

from typing import Final

from runner.models.manager import Manager
from runner.types import GenerateRequest

_SHARE: Final = 2  # one half
CUT: Final = "\n[the rest does not fit into the model's context]"


class ResultRoom:
    """Half of the context of the model of a request, in tokens."""

    def __init__(self, models: Manager, request: GenerateRequest) -> None:
        self._models = models
        self._request = request
        self._left: int | None = None

    async def take(self, text: str) -> str:
        """text, or as much of its beginning as there is room for. Raises what leasing the model
        does."""
        request = self._request
        leased = self._models.lease(request.model, request.options, request.keep_alive_s)
        async with leased as lease:
            if self._left is None:
                self._left = lease.context_length // _SHARE
            tokens = await lease.worker.tokenize(text, add_special=False)
            if len(tokens) <= self._left:
                self._left -= len(tokens)
                return text
            kept, self._left = tokens[: self._left], 0
            return await lease.worker.detokenize(kept) + CUT if kept else CUT.strip()
