"""Which layers of a model see a window only, as llama.cpp decides it.

Of the architectures below; of others it is not known, and their layers hold all tokens. Source:
llama.cpp's src/models/*.cpp, load_arch_hparams, and load_swa_pattern.
"""

from __future__ import annotations

from typing import Final

from registry.formats.gguf import GgufHeader, LazyArray

# In how many layers one sees everything, the last of them, where the file does not say it
_PATTERNS: Final = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4, "olmo2": 4}
_WINDOWS: Final = {"gemma2": 4096}  # where the file does not say it


def attention_window(header: GgufHeader) -> tuple[int, tuple[bool, ...]]:
    """The window in tokens, and for each layer whether it has it; 0 and nothing: none has."""
    pattern: object = _PATTERNS.get(header.architecture)
    window = header.architecture_value("attention.sliding_window")
    if window is None:
        window = _WINDOWS.get(header.architecture)
    layers = header.block_count or 0
    if pattern is None or not isinstance(window, int) or window <= 0:
        return 0, ()
    given = header.architecture_value("attention.sliding_window_pattern")
    if isinstance(given, LazyArray):
        given = tuple(given.load())
    if isinstance(given, tuple):
        return window, (*map(bool, given[:layers]), *[False] * (layers - len(given)))
    every = given if isinstance(given, int) else pattern
    assert isinstance(every, int)
    return window, tuple(every == 0 or at % every < every - 1 for at in range(layers))
