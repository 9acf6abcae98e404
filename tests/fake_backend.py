"""A backend for tests: it repeats the user's last words, and refuses hard whatever a real cache
would silently get wrong (positions that leave a gap, sequences that are not there, more tokens than
fit), so that it is an oracle for the scheduler. It computes the same everywhere.

Unit tests use it directly; tests/fake_worker.py puts it in the place of runner/backends/echo.py.

The vocabulary is the 256 bytes and some control tokens. The reply to a prompt is the text of its
last user turn (<|im_start|>user ...), or the whole prompt where it has no turns, and then the end
token; it starts again for those who ignore that. A request with a temperature and a seed gets the
reply with letters changed to upper case at random, the same ones for the same seed.

Control tokens in the words to repeat act when their turn to be repeated comes:

    <|crash|>  the process dies by SIGSEGV
    <|hang|>   the step never returns
    {stuck}    the prompt never becomes tokens
    <|raise|>  the step raises BackendError
    <|slow|>   each step of this sequence takes SLOW_S longer

A reply that breaks the request's grammar is replaced, token by token, by what ends it soon.
And <|hash|> anywhere in a prompt makes the reply 1 to 64 letters, each depending on all tokens
before it: what a wrongly shared prefix changes.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from runner.backends.backend import (
    BackendError,
    Capacity,
    DecodedImage,
    ImagePart,
    ImageSlot,
    LoadedBackend,
    LoadProgress,
    PoolFull,
    Row,
    SampledToken,
    SavedState,
    TargetLogprobs,
    TokenMask,
    TooManyTokens,
)
from runner.types import OWN_FORM, EmbeddingForm, LoadPlan, SamplingParams

CONTROL = (
    "<|begin|>",
    "<|end|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|crash|>",
    "<|hang|>",
    "<|raise|>",
    "<|slow|>",
    "<|hash|>",
)
BOS, EOS, START, END, CRASH, HANG, RAISE, SLOW, HASH = range(256, 256 + len(CONTROL))
VOCABULARY = 256 + len(CONTROL)
SLOW_S = 0.02
EMBEDDING_WIDTH = 16
IMAGE_PIXELS = 256
STATE_TOKEN_BYTES = 12  # 4 for the token, 8 for the hash

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

STUCK = "{stuck}"
_SPECIAL = re.compile("|".join(re.escape(word) for word in CONTROL))
_USER = [START, *b"user\n"]
_HASTE = (EOS, *b'"}]:0,', *range(97, 123), *range(255, -1, -1), *range(BOS, VOCABULARY))
_HASH_MODULUS = (1 << 61) - 1


class FakeTokenizer:
    """Bytes, and the control tokens by their names."""

    vocabulary = VOCABULARY
    bos: int | None = BOS
    eos: int | None = EOS

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool, max_tokens: int | None = None
    ) -> list[int]:
        """See Tokenizer."""
        if STUCK in text:
            threading.Event().wait()
        if max_tokens is not None and self.min_tokens(text) > max_tokens:
            raise TooManyTokens(self.min_tokens(text), list(text[: max_tokens + 1].encode()))
        tokens = [BOS] if add_bos else []
        start = 0
        for match in _SPECIAL.finditer(text) if parse_special else ():
            tokens += text[start : match.start()].encode("utf-8", "replace")
            tokens.append(256 + CONTROL.index(match.group()))
            start = match.end()
        tokens += text[start:].encode("utf-8", "replace")
        return tokens

    def min_tokens(self, text: str) -> int:
        """See Tokenizer."""
        return len(text) if len(text) > 1 << 16 else 0

    def piece(self, token: int) -> bytes:
        """See Tokenizer."""
        return bytes([token]) if token < 256 else b""

    def text(self, token: int) -> str:
        """See Tokenizer."""
        return CONTROL[token - 256] if token >= 256 else bytes([token]).decode("latin-1")

    def is_end(self, token: int) -> bool:
        """See Tokenizer."""
        return token in (EOS, END)


class FakeSampler:
    """Where the prompt of a request ended, and its random numbers."""

    def __init__(self, params: SamplingParams) -> None:
        seeded = params.temperature > 0 and params.seed is not None
        self._random = random.Random(params.seed) if seeded else None
        self.logprobs = params.logprobs
        self.reply: list[int] = []
        self.prompt_length: int | None = None
        self.hashed = False
        self.closed = False

    def accept(self, tokens: Sequence[int]) -> None:
        """There are no penalties: no effect."""

    def close(self) -> None:
        """See Sampler."""
        self.closed = True

    def next(self, tokens: Sequence[int], digest: int) -> int:
        """The token after tokens; digest: the hash of all of them."""
        if self.prompt_length is None:
            self.prompt_length = len(tokens)
            self.hashed = HASH in tokens
            self.reply = [*(token for token in last_words(tokens) if token >= 0), EOS]
        if self.hashed:
            return EOS if digest % 64 == 0 else 97 + digest % 26
        token = self.reply[(len(tokens) - self.prompt_length) % len(self.reply)]
        if self._random is not None and 97 <= token <= 122 and self._random.random() < 0.5:
            token -= 32
        return token

    @property
    def delay_s(self) -> float:
        """How much longer a step takes because of this request."""
        return SLOW_S if SLOW in self.reply else 0.0


def last_words(tokens: Sequence[int]) -> list[int]:
    """What the reply to a prompt repeats."""
    prompt = list(tokens)
    for start in range(len(prompt) - len(_USER), -1, -1):
        if prompt[start : start + len(_USER)] == _USER:
            words = prompt[start + len(_USER) :]
            return words[: words.index(END)] if END in words else words
    return [token for token in prompt if token != BOS]


@dataclass(slots=True)
class _Cached:
    """A sequence: its tokens, the cell that holds each, the hash up to and with each."""

    tokens: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    least: int = 0  # of a model with a window: tokens that cannot be cut any more


@dataclass(frozen=True, slots=True)
class FakeState:
    """A saved sequence."""

    tokens: tuple[int, ...]
    hashes: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """See SavedState."""
        return STATE_TOKEN_BYTES * len(self.tokens)


class FakeBackend:
    """The cache is a list of tokens per sequence; each token occupies a numbered cell, and cells
    are shared and counted as a real cache does."""

    def __init__(self, capacity: Capacity, sleep: Callable[[float], None] = time.sleep) -> None:
        self.capacity = capacity
        self.steps = 0
        self.computed_tokens = 0
        self.embedded_inputs = 0
        self._sleep = sleep
        self._sequences: dict[int, _Cached] = {}
        self._holders: dict[int, int] = {}  # cell -> sequences that hold it
        self._next_cell = 0

    @property
    def used(self) -> int:
        """Cells in use."""
        return len(self._holders)

    def tokens(self, sequence: int) -> list[int]:
        """The tokens of a sequence in the cache, for tests."""
        return list(self._sequences[sequence].tokens)

    def create_sampler(self, params: SamplingParams) -> FakeSampler:
        """See Backend."""
        return FakeSampler(params)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        """See Backend. Raises BackendError on rows that do not fit the cache's content."""
        self._check(rows)
        for row in rows:
            self._append(row.sequence, row.tokens)
            if row.scoring is not None:
                self._score(row, row.scoring)
            if row.hidden is not None:
                vector = _unit_vector(self._sequences[row.sequence].tokens)
                row.hidden.values = [2 * value for value in vector]
        self.steps += 1
        if self.capacity.window and self.steps % 3:
            self._forget(rows)
        results, delay_s = [], 0.0
        for row in rows:
            if row.sampler is None:
                continue
            sampler = row.sampler
            if not isinstance(sampler, FakeSampler) or sampler.closed:
                raise BackendError(f"row of sequence {row.sequence}: not an open sampler")
            results.append(self._sample(row.sequence, sampler, row.mask))
            for proposed, mask in zip(row.draft, row.masks[1:], strict=True):
                if results[-1].token != proposed:
                    break
                self._append(row.sequence, [proposed])
                results.append(self._sample(row.sequence, sampler, mask))
            delay_s += sampler.delay_s
        if delay_s:
            self._sleep(delay_s)
        return results

    def share(self, source: int, target: int, length: int) -> None:
        """See Backend."""
        origin = self._get(source)
        if self._sequences.get(target, _Cached()).tokens:
            raise BackendError(f"share: target {target} is not empty")
        if not 0 < length <= len(origin.tokens):
            raise BackendError(f"share: {length} of {len(origin.tokens)} tokens")
        if length < self._least(source):
            raise BackendError(f"share: {length} tokens of sequence {source} are too few")
        if self._cuts(origin, length):
            raise BackendError(f"share: {length} tokens end inside an image")
        cells = origin.cells[:length]
        hashes = origin.hashes[:length]
        self._sequences[target] = _Cached(origin.tokens[:length], cells, hashes, origin.least)
        for cell in cells:
            self._holders[cell] += 1

    def min_share(self, sequence: int) -> int:
        """See Backend."""
        return self._sequences.get(sequence, _Cached()).least

    def merge(self, source: int, target: int, length: int) -> None:
        """See Backend. Raises BackendError when the tokens differ."""
        origin, cached = self._get(source), self._get(target)
        if not self.capacity.partial_share or not 0 < length <= len(cached.tokens):
            raise BackendError(f"merge: {length} of {len(cached.tokens)} tokens")
        if origin.tokens[:length] != cached.tokens[:length]:
            raise BackendError(f"merge: sequences {source} and {target} differ")
        if self._cuts(origin, length):
            raise BackendError(f"merge: {length} tokens end inside an image")
        for own, cell in zip(cached.cells[:length], origin.cells[:length], strict=True):
            self._holders[cell] += 1
            self._drop(own)
        cached.cells[:length] = origin.cells[:length]

    def grow(self, pool_tokens: int) -> None:
        """See Backend."""
        self.capacity = replace(self.capacity, pool_tokens=pool_tokens)
        if self.capacity.window:
            self._forget(())

    def trim(self, sequence: int, length: int) -> bool:
        """See Backend."""
        cached = self._get(sequence)
        if not 0 <= length <= len(cached.tokens):
            raise BackendError(f"trim: {length} of {len(cached.tokens)} tokens")
        if length < self._least(sequence):
            return False
        if self._cuts(cached, length):
            raise BackendError(f"trim: {length} tokens end inside an image")
        for cell in cached.cells[length:]:
            self._drop(cell)
        del cached.tokens[length:], cached.cells[length:], cached.hashes[length:]
        return True

    def release(self, sequence: int) -> None:
        """See Backend. An id without tokens is allowed."""
        for cell in self._sequences.pop(sequence, _Cached()).cells:
            self._drop(cell)

    def state_bytes(self, sequence: int) -> int:
        """See Backend."""
        return STATE_TOKEN_BYTES * len(self._get(sequence).tokens)

    def save(self, sequence: int) -> FakeState:
        """See Backend."""
        cached = self._get(sequence)
        if not self.capacity.can_save or not cached.tokens:
            raise BackendError(f"save: sequence {sequence} is empty, or nothing can be saved")
        return FakeState(tuple(cached.tokens), tuple(cached.hashes))

    def load(self, state: SavedState, sequence: int) -> None:
        """See Backend."""
        if not isinstance(state, FakeState) or not 0 <= sequence < self.capacity.max_sequences:
            raise BackendError(f"load: {state!r} into sequence {sequence}")
        if self._sequences.get(sequence, _Cached()).tokens:
            raise BackendError(f"load: sequence {sequence} is not empty")
        count = len(state.tokens)
        if self.used + count > self.capacity.pool_tokens:
            raise PoolFull(f"{count} tokens more than {self.used} of {self.capacity.pool_tokens}")
        cells = list(range(self._next_cell, self._next_cell + count))
        self._next_cell += count
        self._holders.update(dict.fromkeys(cells, 1))
        least = count if self.capacity.window else 0
        self._sequences[sequence] = _Cached(list(state.tokens), cells, list(state.hashes), least)

    def empty_state(self, size_bytes: int, tokens: int) -> SavedState:
        """See Backend."""
        raise BackendError("states of others are not taken")

    def reset(self) -> None:
        """See Backend."""
        self._sequences.clear()
        self._holders.clear()

    def embed(
        self, inputs: Sequence[Sequence[int]], form: EmbeddingForm = OWN_FORM
    ) -> list[list[float]]:
        """A unit vector for each input, or each token, by a hash of its tokens."""
        self.embedded_inputs += len(inputs)
        if form.pooling == "none":
            return [_unit_vector([token]) for tokens in inputs for token in tokens]
        return [_unit_vector(tokens) for tokens in inputs]

    def close(self) -> None:
        """See Backend."""
        self.reset()

    def _get(self, sequence: int) -> _Cached:
        cached = self._sequences.get(sequence)
        if cached is None:
            raise BackendError(f"sequence {sequence} is not in the cache")
        return cached

    def _check(self, rows: Sequence[Row]) -> None:
        """All that must hold before anything is computed."""
        drafted = sum(len(row.draft) for row in rows)
        total = sum(len(row.tokens) for row in rows) + drafted
        batched = total - sum(len(row.tokens) for row in rows if row.image is not None)
        if drafted > self.capacity.draft_tokens:
            raise BackendError(f"{drafted} tokens in drafts of {self.capacity.draft_tokens}")
        if total == 0 or batched > self.capacity.batch_tokens:
            raise BackendError(f"{batched} tokens in a step of 1 to {self.capacity.batch_tokens}")
        if len({row.sequence for row in rows}) != len(rows):
            raise BackendError("a sequence has two rows")
        for row in rows:
            self._check_row(row)
        scored = sum(len(row.tokens) for row in rows if row.scoring is not None)
        if scored > self.capacity.score_tokens:
            raise BackendError(f"{scored} tokens to score of {self.capacity.score_tokens}")
        if self.used + total > self.capacity.pool_tokens:
            raise PoolFull(f"{total} tokens more than {self.used} of {self.capacity.pool_tokens}")

    def _check_row(self, row: Row) -> None:
        cached = self._sequences.get(row.sequence)
        length = 0 if cached is None else len(cached.tokens)
        if not 0 <= row.sequence < self.capacity.max_sequences:
            raise BackendError(f"sequence {row.sequence} of {self.capacity.max_sequences}")
        if row.position != length:
            raise BackendError(
                f"sequence {row.sequence} has {length} tokens, row at position {row.position}"
            )
        if row.draft and (row.sampler is None or len(row.masks) <= len(row.draft)):
            raise BackendError(f"sequence {row.sequence}: a draft that nothing can confirm")
        if length + len(row.tokens) + len(row.draft) > self.capacity.context_length:
            raise BackendError(f"sequence {row.sequence} is longer than the context")
        if row.image is not None:
            self._check_image(row, row.image)
        elif not row.tokens or min(row.tokens) < 0 or max(row.tokens) >= VOCABULARY:
            raise BackendError(f"sequence {row.sequence}: no tokens, or unknown ones")

    def _check_image(self, row: Row, image: ImagePart) -> None:
        first = row.tokens[0] if row.tokens else 0
        run = list(range(first, first - image.tokens, -1))
        if first >= 0 or list(row.tokens) != run or row.draft or row.scoring is not None:
            raise BackendError(f"sequence {row.sequence}: the row is not one whole image")

    def _cuts(self, cached: _Cached, length: int) -> bool:
        """Whether an image would lose a part of its tokens."""
        tokens = cached.tokens
        if not 0 < length < len(tokens):
            return False
        return tokens[length] < 0 and tokens[length - 1] == tokens[length] + 1

    def _least(self, sequence: int) -> int:
        """Of how few of its first tokens a sequence can be made."""
        cached = self._get(sequence)
        if self.capacity.window:
            return cached.least
        return 0 if self.capacity.partial_share else len(cached.tokens)

    def _forget(self, rows: Sequence[Row]) -> None:
        """What the next tokens do not see has left: of the rows', what their own have seen last."""
        positions = {row.sequence: row.position for row in rows}
        for sequence, cached in self._sequences.items():
            cached.least = positions.get(sequence, len(cached.tokens))

    def _append(self, sequence: int, tokens: Sequence[int]) -> None:
        cached = self._sequences.setdefault(sequence, _Cached())
        digest = cached.hashes[-1] if cached.hashes else 1
        for token in tokens:
            digest = (digest * 1_000_003 + token + 1) % _HASH_MODULUS
            cached.tokens.append(token)
            cached.hashes.append(digest)
            cached.cells.append(self._next_cell)
            self._holders[self._next_cell] = 1
            self._next_cell += 1
        self.computed_tokens += len(tokens)

    def _sample(self, sequence: int, sampler: FakeSampler, mask: TokenMask | None) -> SampledToken:
        cached = self._sequences[sequence]
        token = sampler.next(cached.tokens, cached.hashes[-1])
        if mask is not None:
            token = _allowed(token, mask.bits())
        if CRASH <= token <= RAISE:
            _misbehave(token)
        if sampler.logprobs is None:
            return SampledToken(sequence, token)
        top = [(token + rank) % VOCABULARY for rank in range(sampler.logprobs)]
        nats = [-0.1 - 2.4 * rank for rank in range(len(top))]
        return SampledToken(sequence, token, -0.1, tuple(zip(top, nats, strict=True)))

    def _score(self, row: Row, scoring: TargetLogprobs) -> None:
        """What a target gets depends on all tokens before it; the likeliest token is the one
        after the target."""
        hashes = self._sequences[row.sequence].hashes[row.position :]
        found = []
        for target, digest in zip(scoring.targets, hashes, strict=False):
            best = (target + 1) % VOCABULARY
            top = ((best, -0.05), (target, -0.1 - digest % 1000 / 1000))
            found.append((top[1][1], top[: scoring.top]))
        scoring.logprobs = found

    def _drop(self, cell: int) -> None:
        self._holders[cell] -= 1
        if self._holders[cell] == 0:
            del self._holders[cell]


@dataclass(frozen=True, slots=True)
class FakeSlot:
    """A part of a picture: how many tokens it takes."""

    tokens: int


class FakeVision:
    """Sees nothing: a picture is a token and another for each IMAGE_PIXELS pixels. What the backend
    repeats are the words beside it."""

    def read(self, picture: DecodedImage) -> list[list[int] | ImageSlot]:
        """See VisionEncoder."""
        return [FakeSlot(1 + picture.width * picture.height // IMAGE_PIXELS)]

    def encode(self, slot: ImageSlot) -> ImagePart:
        """See VisionEncoder."""
        import numpy as np

        return ImagePart(np.zeros((slot.tokens, 1), np.float32), slot.tokens)


def _allowed(token: int, bits: bytes) -> int:
    """The token where the mask allows it, else one that it allows, rather one that brings JSON
    to its end."""
    return next((t for t in (token, *_HASTE) if bits[t >> 3] >> (t & 7) & 1), token)


def _misbehave(token: int) -> None:
    if token == CRASH:
        signal.raise_signal(signal.SIGSEGV)
    if token == HANG:
        threading.Event().wait()
    raise BackendError("the prompt asked for a failure")


def _unit_vector(tokens: Sequence[int]) -> list[float]:
    digest = hashlib.sha256(" ".join(map(str, tokens)).encode()).digest()
    values = [byte - 127.5 for byte in digest[:EMBEDDING_WIDTH]]
    norm = math.sqrt(sum(value * value for value in values))
    return [value / norm for value in values]


def load(plan: LoadPlan, progress: LoadProgress) -> LoadedBackend:
    """A model of the plan's sizes, which takes images where the plan has a projector. No
    file is read."""
    progress(0.0)
    capacity = Capacity(
        pool_tokens=plan.pool_tokens,
        max_sequences=plan.max_sequences,
        context_length=plan.max_context_length,
        batch_tokens=plan.batch_tokens,
        vocabulary=VOCABULARY,
        block_size=1,
        partial_share=True,
        can_save=True,
        score_tokens=plan.batch_tokens,
        draft_tokens=plan.batch_tokens,
    )
    progress(1.0)
    vision = None if plan.projector is None else FakeVision()
    backend, tokenizer = FakeBackend(capacity), FakeTokenizer()
    return LoadedBackend(backend, tokenizer, CHAT_TEMPLATE, vision=vision)
