"""The seam between the engine and what computes: the Backend and Tokenizer protocols.

A backend owns the weights and the cache of keys and values of all sequences. It knows nothing
of requests, text, stop strings or fairness. One thread calls it; its native calls release the
GIL. echo.py is the smallest implementation, the one to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from runner.errors import ModelLoadFailed
from runner.types import OWN_FORM, Adapters, EmbeddingForm, SamplingParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


AUDIO_SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a backend can hold. Fixed for its life, but for pool_tokens: see Backend.grow."""

    pool_tokens: int  # tokens of cache over all sequences; a shared prefix counts once
    max_sequences: int  # sequence ids are 0 .. max_sequences - 1
    context_length: int  # most tokens of one sequence
    batch_tokens: int  # most tokens of one step
    vocabulary: int  # token ids are 0 .. vocabulary - 1
    block_size: int  # sharing and allocation granularity in tokens; 1: exact
    partial_share: bool  # False (recurrent state): only a whole sequence can be shared or kept
    can_save: bool = False  # save and load work
    state_format: str = ""  # of saved parts: another worker with the same may load them
    part_tokens: int = 0  # of each part of a copy but the last; 0: copies have one part
    window: bool = False  # what is further back than that of attention is lost: see min_share
    score_tokens: int = 0  # most tokens of a step in rows with scoring; 0: there are none
    draft_tokens: int = 0  # most tokens in the drafts of a step together; 0: rows have none
    hidden_states: bool = False  # rows may ask for them
    vector_width: int = 0  # values of a vector of an embedding model
    input_width: int | None = None  # of vectors that rows may have as images; None: they may not

    def check_sequence(self, sequence: int) -> None:
        """Raises BackendError for an id out of range, for which llama.cpp ends the process."""
        if not 0 <= sequence < self.max_sequences:
            raise BackendError(f"no sequence {sequence}; there are 0 to {self.max_sequences - 1}")


class Sampler(Protocol):
    """The state of one request's sampling: random numbers, penalty window, grammar. What one
    without penalties or native memory need not do, it has from here.

    Survives preemption of its sequence. Made by Backend.create_sampler, ended by close.
    """

    def accept(self, tokens: Sequence[int]) -> None:
        """Let the penalties see tokens that were not sampled by this sampler (the prompt)."""
        return

    def close(self) -> None:
        """Give native memory back. Calling it twice is allowed."""
        return


class TokenMask(Protocol):
    """Which tokens may follow. It is computed beside the step that needs it."""

    def bits(self) -> bytes:
        """A bit for each token of the vocabulary, the least significant bit of a byte first; 1:
        it may follow. Waits until they are computed."""


# A token's log-probability in nats, and the most likely tokens with theirs, best first
TokenLogprob = tuple[float, tuple[tuple[int, float], ...]]


@dataclass(slots=True)
class TargetLogprobs:
    """Known tokens whose log-probabilities are asked for: targets[i] stands after tokens[i] of
    the row. There are as many as tokens, or one less. step fills logprobs: for each target its
    log-probability and the top most likely tokens, as in SampledToken; NaN where the logits are."""

    targets: Sequence[int]
    top: int
    logprobs: Sequence[TokenLogprob] = ()


@dataclass(slots=True)
class HiddenState:
    """The state of a row's last token after the last layer and its norm, which step fills in."""

    values: Sequence[float] = ()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ImagePart:
    """A piece of a picture as the model reads it, computed whole or not at all.

    vectors: [tokens, width], in place of embedded tokens. advance: by how many positions it moves
    on what follows, which is not tokens where positions have two dimensions; places then holds
    them, [4, tokens], less the position of the first. causal False: its tokens see each other
    in both directions."""

    vectors: NDArray[np.float32]
    advance: int
    places: NDArray[np.int32] | None = None
    causal: bool = True

    @property
    def tokens(self) -> int:
        """Places in a sequence."""
        return len(self.vectors)


@dataclass(slots=True)
class Row:
    """Tokens of one sequence in a step: tokens[0] stands at position. With a sampler, the
    token after the last one is sampled, from those of mask where there is one, and accepted by
    the sampler.

    draft: tokens that may come next, for a row with a sampler. They are computed in the same step,
    and a token is sampled after each of them that the one sampled before it confirms, from those of
    its mask in draft_masks where there is one for the row. The cache keeps tokens and the confirmed
    ones of draft.

    image: what is computed in place of tokens, which are negative then and only name it: the same
    ones, the same image. Such a row does not count among the batch's tokens."""

    sequence: int
    tokens: Sequence[int]
    position: int
    sampler: Sampler | None = None
    mask: TokenMask | None = None
    scoring: TargetLogprobs | None = None
    draft: Sequence[int] = ()
    image: ImagePart | None = None
    hidden: HiddenState | None = None  # for a row without a sampler and scoring
    draft_masks: Sequence[TokenMask] = ()
    adapters: Adapters = ()

    @property
    def masks(self) -> Sequence[TokenMask | None]:
        """Of the tokens that are sampled: after the row's, and after each of its draft."""
        if self.mask is None:
            return [None] * (1 + len(self.draft))
        return [self.mask, *self.draft_masks]


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The token chosen for the row with this sequence. logprob and top are filled when its
    SamplingParams.logprobs is not None: nats of the softmax of the raw logits, best first."""

    sequence: int
    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class SavedState(Protocol):
    """A sequence's part of the cache in the machine's own memory. Good for the backend that
    made it, after a reset too; its memory is free when the object is."""

    @property
    def size_bytes(self) -> int:
        """The memory it takes."""


@runtime_checkable
class WritableState(SavedState, Protocol):
    """A saved sequence whose bytes may be taken elsewhere and put back."""

    def memory(self) -> memoryview:
        """Its bytes, in place."""


@runtime_checkable
class SavedParts(SavedState, Protocol):
    """A saved sequence whose bytes may be kept for another worker, part by part. Those of the same
    tokens after the same tokens are the same, whatever follows them."""

    def parts(self) -> Sequence[memoryview]:
        """Its bytes, in place: of Capacity.part_tokens tokens each, but for the last part."""


class BackendError(Exception):
    """The computation failed; the cache content is undefined until reset."""


class TooManyTokens(Exception):
    """A text has at least count tokens, more than were wanted. tokens: its first ones."""

    def __init__(self, count: int, tokens: list[int]) -> None:
        super().__init__(f"at least {count} tokens")
        self.count = count
        self.tokens = tokens


class PoolFull(BackendError):
    """The step needs more cache than is free. Nothing was computed; the cache is unchanged."""


class RowFault(BackendError):
    """Some rows of a step gave no usable logits (NaN). The step itself went well: the cache is
    as after any other, sampled holds the other rows, sequences names those at fault."""

    def __init__(
        self, message: str, *, sampled: Sequence[SampledToken], sequences: Sequence[int]
    ) -> None:
        super().__init__(message)
        self.sampled = tuple(sampled)
        self.sequences = tuple(sequences)


class Backend(Protocol):
    """One loaded model. What a backend need not have is refused here, what it need not do is done
    here: nothing."""

    capacity: Capacity

    def create_sampler(self, params: SamplingParams) -> Sampler:
        """A fresh sampler. params.seed None draws one. Raises runner.errors.InvalidRequest for
        what this vocabulary cannot do (a bias of a token that does not exist)."""

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        """Compute all rows in one batch; one Sampled per row with a sampler, in row order, and
        one more for each confirmed token of its draft.

        Raises PoolFull, RowFault, BackendError.
        """

    @property
    def mixes_adapters(self) -> bool:
        """Whether different adapters may act in the rows of a step. It may change with those that
        are loaded."""
        return False

    def load_adapter(self, name: str, path: Path) -> None:
        """Let rows name the LoRA adapter of a checked GGUF file, which is not needed afterwards.
        Raises ModelLoadFailed for one that is not for this model; nothing has changed then."""
        raise ModelLoadFailed("this backend has no adapters")

    def unload_adapter(self, name: str) -> None:
        """No row names the adapter any more: its memory is free."""
        return

    def share(self, source: int, target: int, length: int) -> None:
        """target (empty) starts with source's first length tokens: no recompute, no copy.
        With partial_share False, length must be all of source, or min_share at least."""

    def min_share(self, sequence: int) -> int:
        """For a capacity with a window: how many of the sequence's first tokens can be shared or
        kept now at least. It may become more, up to all, whenever something is computed, shared or
        loaded, and when the cache grows: then cells are reused that no later token of the sequence
        sees."""
        raise BackendError("this backend has no attention window")

    def merge(self, source: int, target: int, length: int) -> None:
        """The first length tokens of both are the same; from here on target has source's, and
        its own cells for them are free. Only with partial_share; may do nothing."""
        return

    def trim(self, sequence: int, length: int) -> bool:
        """Keep the first length tokens only. False: the model cannot (recurrent state, or less than
        min_share), the sequence is unchanged and must be released."""

    def release(self, sequence: int) -> None:
        """Forget the sequence; its id is free. Tokens shared with others stay with them."""

    def state_bytes(self, sequence: int) -> int:
        """The size_bytes that save would give, but for a few of each part. Copies nothing."""
        return 0

    def save(self, sequence: int) -> SavedState:
        """A copy of all that the cache holds of the sequence, which stays as it is. Raises
        BackendError when can_save is False, the sequence is empty or memory is short; nothing
        has changed then."""
        raise BackendError("this backend cannot save sequences")

    def load(self, state: SavedState, sequence: int) -> None:
        """The sequence (empty) holds what was saved, in cells of its own. Raises PoolFull when
        they are not free, BackendError when the state is refused; nothing has changed then."""
        raise BackendError("this backend cannot save sequences")

    def empty_state(self, size_bytes: int, tokens: int) -> WritableState:
        """Memory for the bytes of a saved sequence, to be filled and loaded: those of another
        worker with the same model, loaded in the same way. Others crash this one. Raises
        BackendError when this backend does not take them, or memory is short."""
        raise BackendError("this backend cannot take up states of another worker")

    def grow(self, pool_tokens: int) -> None:
        """Make a cache for so many tokens, with what it holds now, if there is memory for it: the
        capacity says so. Raises BackendError when the cache is lost."""
        raise BackendError("this backend cannot make its cache larger")

    def join_parts(self, parts: Sequence[memoryview], tokens: int) -> SavedState:
        """A saved sequence of so many tokens of parts that SavedParts gave; see empty_state. Their
        memory is used as long as the object."""
        raise BackendError("this backend cannot take up states of another worker")

    def reset(self) -> None:
        """Forget all sequences. Raises BackendError when there is no cache."""

    def embed(
        self, inputs: Sequence[Sequence[int]], form: EmbeddingForm = OWN_FORM
    ) -> list[list[float]]:
        """One vector per input; of a model that ranks pairs of texts, its score of 0 to 1 as the
        only value, whatever the form. Must not disturb sequences. Raises BackendError when the
        model has no embeddings."""
        raise BackendError("this model is not an embedding model")

    def close(self) -> None:
        """Give everything back. The object is unusable afterwards."""
        return


class Tokenizer(Protocol):
    """The vocabulary of the loaded model."""

    vocabulary: int
    bos: int | None
    eos: int | None

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool, max_tokens: int | None = None
    ) -> list[int]:
        """Token ids of text. parse_special: control tokens written in the text count as such.
        add_bos adds BOS only when the model wants one. A long text is read in parts, with
        runner.backends.turns.pause between them; where max_tokens do not suffice for it, the rest
        is not read: TooManyTokens. Raises InvalidRequest for what would take too long."""

    def min_tokens(self, text: str) -> int:
        """At least how many tokens text has, from a look at it; 0: not known."""

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for in output; control tokens give b""."""

    def text(self, token: int) -> str:
        """The token as the vocabulary writes it, control tokens too ("<|im_end|>"): what chat
        templates call bos_token and eos_token."""

    def is_end(self, token: int) -> bool:
        """True for the tokens that end a generation (EOS, EOT, ...)."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedImage:
    """A decoded picture: width * height pixels, row by row, three bytes each (RGB)."""

    width: int
    height: int
    rgb: bytes


class PairEncoder(Protocol):
    """What makes one input of a query and a document, for a model that ranks them."""

    def __call__(self, query: str, document: str, max_tokens: int | None = None, /) -> list[int]:
        """Their tokens. max_tokens of each of them: see Tokenizer.encode."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedAudio:
    """A decoded recording: [samples], mono, AUDIO_SAMPLE_RATE of them a second."""

    samples: NDArray[np.int16]


class ImageSlot(Protocol):
    """A part of a picture that is not encoded yet. Its memory is free when the object is."""

    @property
    def tokens(self) -> int:
        """Places it will take in a sequence."""


class VisionEncoder(Protocol):
    """What makes embeddings of pictures and recordings, or of one of them. Used beside the backend,
    from one other thread."""

    def read(self, media: DecodedImage | DecodedAudio) -> list[list[int] | ImageSlot]:
        """What stands for the media in a prompt, in order: token ids that the model has around
        and between its parts, and the parts. Encodes nothing. Raises InvalidRequest."""

    def encode(self, slot: ImageSlot) -> ImagePart:
        """Compute the embeddings: seconds for a large picture. Raises BackendError."""


@dataclass(frozen=True, slots=True)
class LoadedBackend:
    """What load gives the worker: the computing part, its vocabulary and its template."""

    backend: Backend
    tokenizer: Tokenizer
    chat_template: str | None  # Jinja source from the model file
    tool_template: str | None = None  # its own one for conversations with tools, if it has one
    pair: PairEncoder | None = None  # None: the model ranks no documents
    vision: VisionEncoder | None = None  # None: the model reads no images


class Followers(Protocol):
    """The processes that compute a model together with this one, which is the first of them. They
    were started with the same plan, and have joined this one before anything is loaded."""

    joined: Any  # what the backend's own join gave here

    def broadcast(self, message: bytes, file: Path | None = None) -> None:
        """Send all of them a message, and a file to read. Does not wait until it is read. Raises
        OSError for a file that cannot be opened."""

    def wait_loaded(self) -> None:
        """Wait until all have loaded their parts. Raises ModelLoadFailed."""

    def abandon(self, reason: str) -> NoReturn:
        """This process has failed where the others wait for it: end all of them."""


class Leader(Protocol):
    """The first process of a model, as its Followers hear it."""

    def receive(self) -> bytes:
        """The next message. Raises EOFError, OSError once it is gone."""

    def receive_file(self) -> IO[bytes]:
        """The file that came with it. Raises as receive."""


LoadProgress = Callable[[float], None]  # share done, 0.0 .. 1.0
