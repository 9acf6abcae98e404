"""How much memory a cache takes, by the tokens that it holds.

Layers with an attention window need little more than that for each sequence. llama.cpp can give
them that, or as much as the others: it is decided here. Sizes in bytes, lengths in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

_PAD_CELLS = 256  # llama.cpp's, of such a cache (llama-kv-cache-iswa.cpp)
_SPARE_SEQUENCES = 2  # beside the running ones: what idles waits outside the cache or goes


@dataclass(frozen=True, slots=True)
class CacheSize:
    """token_bytes: of the layers that hold all tokens; window_token_bytes: of those that hold no
    more than window_cells."""

    token_bytes: float = 0.0
    window_token_bytes: float = 0.0
    window_cells: int = 0

    def size_bytes(self, tokens: int) -> int:
        """Of a cache for so many tokens."""
        in_windows = min(tokens, self.window_cells)
        return int(self.token_bytes * tokens + self.window_token_bytes * in_windows)

    def affordable(self, tokens: int, size_bytes: float, beside_bytes: float = 0.0) -> int:
        """How many tokens a cache for tokens can have with so much memory more. beside_bytes: what
        a token takes outside the cache."""
        size_bytes = max(0.0, size_bytes)
        far = max(1.0, self.token_bytes + beside_bytes)
        near, room = far + self.window_token_bytes, max(0, self.window_cells - tokens)
        if size_bytes <= near * room:
            return tokens + int(size_bytes / near)
        return tokens + room + int((size_bytes - near * room) / far)

    def times(self, factor: float) -> CacheSize:
        """So many of them."""
        return CacheSize(
            self.token_bytes * factor, self.window_token_bytes * factor, self.window_cells
        )


def window_sequences(num_parallel: int) -> int:
    """Sequence ids of a model whose layers have a window for each."""
    return max(1, num_parallel) + _SPARE_SEQUENCES


def window_cells(window: int, num_parallel: int, batch_tokens: int) -> int:
    """Cells of a layer with an attention window of so many tokens, as llama.cpp counts them."""
    needed = window * window_sequences(num_parallel) + batch_tokens
    return -(-needed // _PAD_CELLS) * _PAD_CELLS
