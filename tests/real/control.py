"""llama-cpp-python with llama.cpp's own kernels, in this process: what hearth is compared with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

CONTEXT = 512
# Its threads wait by spinning: where another program has one of the cores, two take 2.5 times the
# processor time of one.
_THREADS = max(1, (os.cpu_count() or 1) // 2)


class Control:
    """A GGUF file with a context of CONTEXT tokens."""

    def __init__(self, path: Path) -> None:
        self._model = llama_cpp.Llama(
            str(path),
            n_ctx=CONTEXT,
            n_batch=CONTEXT,
            n_threads_batch=_THREADS,
            n_threads=_THREADS,
            logits_all=True,
            verbose=False,
        )
        self.bos = self._model.token_bos() if self._adds_bos() else None

    def close(self) -> None:
        """Free it."""
        self._model.close()

    def tokens(self, text: str) -> list[int]:
        """The text as tokens, without those of a beginning, and with none for its control words."""
        return list(self._model.tokenize(text.encode(), add_bos=False, special=False))

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """[tokens, vocabulary]; valid until the next call."""
        self._model.reset()
        self._model.eval(tokens)
        return self._model.scores[: len(tokens)]

    def greedy(self, prompt: Sequence[int], count: int) -> tuple[list[int], NDArray[np.float32]]:
        """The likeliest count tokens after the prompt, fewer where the answer ends, and the logits
        that each was chosen from."""
        rows = [self.logits(prompt)[-1].copy()]
        answer: list[int] = []
        while len(answer) < count:
            answer.append(int(rows[-1].argmax()))
            if self._ends(answer[-1]) or len(answer) == count:
                break
            self._model.eval(answer[-1:])
            rows.append(self._model.scores[len(prompt) + len(answer) - 1].copy())
        return answer, np.stack(rows)

    def _adds_bos(self) -> bool:
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocabulary))

    def _ends(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_eog(self._vocabulary, token))

    @property
    def _vocabulary(self) -> llama_cpp.llama_vocab_p:
        return llama_cpp.llama_model_get_vocab(self._model.model)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each row."""
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return np.asarray(rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True)))
