"""Grammars on the sampling path: compiled once, then one matcher for each request.

llguidance does the matching. Masks are computed on threads of their own while the model computes
the step that needs them: both release the GIL. Knows nothing of backends, requests or schemas
beyond what Grammar says.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from runner.backends.backend import Tokenizer, TokenMask
from runner.engine.call_watch import CallWatch
from runner.engine.grammar_trial import compile_in_child
from runner.engine.jump_ahead import JumpAhead
from runner.engine.lark import (
    FREE_LIMITS,
    LIMITS,
    first_line,
    llguidance_source,
    schema_fault,
    with_plain_schemas,
)
from runner.engine.odds import Proposals
from runner.engine.schema import locate, read_schema
from runner.engine.schemas.places import Places
from runner.engine.schemas.rewrite import kept_apart, misread, rewritten
from runner.engine.schemas.rules import REPEATS_MARK, REPEATS_TOKEN
from runner.engine.unique_items import Prelude, UniqueItems, VocabularyIndex
from runner.engine.unique_matcher import Matcher, UniqueMatcher
from runner.errors import InvalidRequest
from runner.types import Grammar

T = TypeVar("T")
TimedMask = Future[tuple[bytes, float]]  # and the processor time that it took
MAX_CACHED_GRAMMARS = 64  # compiled grammars kept for the next request
MASK_THREADS = 2
MAX_DRAFT_MASK_S = 0.002  # of processor time for one mask, where others are to be computed ahead
MATCHING_S, MATCHING_S_PER_TOKEN = 0.5, 0.01  # of processor time; usual grammars take 1 ms a token
_MAX_UNTRIED_CHARS = 16 * 1024  # of a schema, an expression or choices; larger ones are tried first


class LlguidanceMatcher:
    """How far an answer has come in its grammar. See runner.backends.backend.TokenMask.

    Used by one thread, which must not call accept between a bits that is waited for and its
    return.
    """

    __slots__ = ("_ahead", "_jump", "_left_s", "_mask", "_matcher", "_param", "_pool", "complete")
    ends_answer = True

    def __init__(self, matcher: Matcher, pool: ThreadPoolExecutor, param: str) -> None:
        self._matcher = matcher
        self._pool = pool
        self._param = param
        self.complete = False  # nothing may follow
        self._left_s = MATCHING_S
        self._mask: TimedMask = pool.submit(_timed, _mask_of, matcher)
        self._ahead: deque[tuple[int, TimedMask]] = deque()  # the masks after each token of a draft
        self._jump: JumpAhead | None = None  # for an answer with drafts

    def bits(self) -> bytes:
        """See TokenMask. When the grammar has become too much work, all but the end is allowed, and
        the next accept tells."""
        return self._mask.result()[0]

    def accept(self, token: int) -> None:
        """Go on by a token that is no end of the answer, and begin with the next mask. Raises
        InvalidRequest when the grammar has become too much work, or does not allow it."""
        matcher, (_, took_s) = self._matcher, self._mask.result()
        if self._jump is not None:
            self._jump.observe(matcher, token)
        accepted, more_s = _timed(matcher.consume_token, token)
        if not accepted:
            reason = first_line(matcher.get_error())
            if "Too many items" in reason:
                limit = reason.partition("limit ")[2].partition(";")[0]
                raise self._too_much(f"more than {limit} steps")
            raise InvalidRequest(
                f"{self._param}: the grammar allows no continuation: {reason}", param=self._param
            )
        self._left_s = min(MATCHING_S, self._left_s + MATCHING_S_PER_TOKEN - took_s - more_s)
        if self._left_s < 0:
            raise self._too_much(f"more than {MATCHING_S_PER_TOKEN * 1000:g} ms")
        self.complete = matcher.is_stopped()
        if self._ahead and self._ahead[0][0] == token:
            self._mask = self._ahead.popleft()[1]
            return
        self._ahead.clear()
        if not self.complete:
            self._mask = self._pool.submit(_timed, _mask_of, matcher)

    def propose(self, past: Proposals, limit: int) -> Proposals:
        """See GrammarMatcher. Nothing where masks take long: those of tokens that turn out wrong
        would be too many."""
        if self._jump is None:
            self._jump = JumpAhead()
        if self.complete or self._mask.result()[1] > MAX_DRAFT_MASK_S:
            return [], []
        return self._jump.propose(self._matcher.deep_copy(), past, limit)

    def draft(self, tokens: Sequence[int]) -> list[TokenMask]:
        """See GrammarMatcher."""
        masks = [TimedMask() for _ in tokens]
        self._ahead = deque(zip(tokens, masks, strict=True))
        self._mask.result()
        self._pool.submit(_compute_masks, self._matcher.deep_copy(), list(self._ahead))
        return [_DraftMask(mask) for mask in masks]

    def _too_much(self, work: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self._param}: the grammar takes {work} for a token; write it with fewer ways to read"
            " the same text",
            param=self._param,
        )


class _DraftMask(TokenMask):
    """The mask after a token of a draft."""

    __slots__ = ("_mask",)

    def __init__(self, mask: TimedMask) -> None:
        self._mask = mask

    def bits(self) -> bytes:
        """See TokenMask."""
        return self._mask.result()[0]


def _compute_masks(matcher: Matcher, masks: Sequence[tuple[int, TimedMask]]) -> None:
    """Let matcher go on by each token, and compute the mask after it."""
    for token, mask in masks:
        matcher.consume_token(token)
        mask.set_result(_timed(_mask_of, matcher))


def _mask_of(matcher: Matcher) -> bytes:
    """What may follow. llguidance allows only the end when it fails, as if the answer was whole."""
    bits = matcher.compute_bitmask()
    return bytes(255 - byte for byte in bits) if matcher.is_error() else bits


def _timed(work: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """The result of work, and the processor time of this thread that it took."""
    began_s = time.thread_time()
    return work(*arguments), time.thread_time() - began_s


class Grammars:
    """The grammars of one model. Any thread may compile."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: LLTokenizer | None = None  # most models never see a grammar
        self._index: VocabularyIndex | None = None
        self._pool = ThreadPoolExecutor(MASK_THREADS, thread_name_prefix="masks")
        self._compiled: OrderedDict[tuple[Grammar, bool, str | None], _Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(
        self, grammar: Grammar, *, opened: bool = False, salt: str | None = None
    ) -> LlguidanceMatcher:
        """A fresh matcher. opened: the prompt has opened the reasoning. salt: a compiled grammar is
        reused only for the same salt, so that nobody can learn from the compile time which grammars
        others use. Raises InvalidRequest with the place of the error."""
        compiled = self._compiled_of(grammar, opened, salt)
        param, own = grammar.param or "grammar", compiled.matcher.deep_copy()
        matcher: Matcher = own
        if compiled.places is not None:
            prelude = _prelude(grammar, opened=opened)
            items = UniqueItems(compiled.places, self._indexed(), self._tokenizer, prelude)
            matcher = UniqueMatcher(own, items, self._tokenizer.vocabulary)
        return LlguidanceMatcher(matcher, self._pool, param)

    def watch(
        self, grammar: Grammar, *, opened: bool = False, salt: str | None = None
    ) -> CallWatch:
        """Follows an answer by a grammar with begins. opened, salt: see matcher. Raises
        InvalidRequest."""
        compiled = self._compiled_of(replace(grammar, reasoning=None), False, salt)

        def begin() -> LlguidanceMatcher:
            matcher = compiled.matcher.deep_copy()
            return LlguidanceMatcher(matcher, self._pool, grammar.param or "grammar")

        return CallWatch(begin, grammar.begins, grammar.reasoning, opened=opened)

    def _compiled_of(self, grammar: Grammar, opened: bool, salt: str | None) -> _Compiled:
        key = (grammar, opened, salt)
        with self._lock:
            compiled = self._compiled.get(key)
            if compiled is not None:
                self._compiled.move_to_end(key)
        if compiled is None:
            compiled = self._compile(grammar, opened)
            with self._lock:
                self._compiled[key] = compiled
                if len(self._compiled) > MAX_CACHED_GRAMMARS:
                    self._compiled.popitem(last=False)
        return compiled

    def _compile(self, grammar: Grammar, opened: bool) -> _Compiled:
        param = grammar.param or "schema"
        is_schema = grammar.kind == "json_schema"
        schema = read_schema(grammar.text, param) if is_schema else None
        source = llguidance_source(grammar, self._tokenizer, opened=opened, schema=schema)
        built, places = self._built(grammar, source), None
        if is_schema and (isinstance(built, str) or misread(schema)):
            schema = rewritten(schema, param)
            plain, places = kept_apart(schema, param)
            source = llguidance_source(
                grammar, self._tokenizer, opened=opened, schema=plain, is_rewritten=True
            )
            built = self._built(grammar, source)
        elif isinstance(built, str) and grammar.schemas:
            plainer = with_plain_schemas(grammar)
            source = llguidance_source(plainer, self._tokenizer, opened=opened)
            built = self._built(plainer, source)
        if isinstance(built, str):
            raise _fault(grammar, built)
        return _Compiled(built, places)

    def _built(self, grammar: Grammar, source: str) -> LLMatcher | str:
        """A matcher, or what is wrong with the source."""
        is_free = grammar.kind in ("lark", "gbnf") and not grammar.schemas
        if is_free or len(source) > _MAX_UNTRIED_CHARS:
            # the child has another vocabulary
            compile_in_child(source.replace(REPEATS_MARK, ""), grammar.param or "grammar")
        if self._vocabulary is None:  # prepared with the first grammar that is right
            failed, messages = LLMatcher.validate_grammar_with_warnings(source, limits=LIMITS)
            if failed:
                return str(messages[0])
        limits = FREE_LIMITS if is_free else LIMITS
        matcher = LLMatcher(self._prepared(), source, log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()  # what is explosive fails here rather than in a step
        return str(matcher.get_error()) if matcher.is_error() else matcher

    def _prepared(self) -> LLTokenizer:
        """The vocabulary: 0.2 s for 150,000 tokens."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._tokenizer)
            return self._vocabulary

    def _indexed(self) -> VocabularyIndex:
        with self._lock:
            if self._index is None:  # few schemas need it
                self._index = VocabularyIndex(self._tokenizer)
            return self._index


@dataclass(frozen=True, slots=True)
class _Compiled:
    """places: of arrays whose items must differ, which the matcher does not see to."""

    matcher: LLMatcher
    places: Places | None


def _prelude(grammar: Grammar, *, opened: bool) -> Prelude | None:
    if grammar.reasoning is None:
        return None
    opening, end = (marker.encode() for marker in grammar.reasoning)
    head = None if grammar.head is None else grammar.head.encode()
    return Prelude(opening, end, head, opened)


def _fault(grammar: Grammar, message: str) -> InvalidRequest:
    param = grammar.param or "grammar"
    schemas = grammar.schemas
    if grammar.kind == "json_schema":
        schemas = ((param, grammar.text),)
    for path, text in schemas:
        schema = read_schema(text, path)
        if len(schemas) == 1 or schema_fault(schema) is not None:
            error = locate(schema, path, schema_fault)
            if "it cannot be compiled" not in error.message:
                return error
    reason = first_line(message)
    if reason.startswith("NoExtension"):
        reason = "nothing can match it"
    return InvalidRequest(f"{param}: {reason}", param=param)


_LEAD = "\x02"  # a token of its own in every vocabulary


class _Words:
    """A vocabulary in the shape that llguidance reads, with REPEATS_TOKEN behind it."""

    def __init__(self, tokenizer: Tokenizer, ends: list[int]) -> None:
        self._tokenizer = tokenizer
        first = tokenizer.encode("a", add_bos=False, parse_special=False)
        self._lead = _LEAD if b"".join(map(tokenizer.piece, first)) == b" a" else ""
        self.eos_token_id = ends[0]
        self.bos_token_id = tokenizer.bos
        self.tokens = []
        self.special_token_ids = []
        for token in range(tokenizer.vocabulary):
            piece = tokenizer.piece(token)
            if not piece or token in ends:
                # 0xff is in no UTF-8: text cannot become a control token
                piece = b"\xff" + tokenizer.text(token).encode()
                self.special_token_ids.append(token)
            self.tokens.append(piece)
        self.special_token_ids.append(len(self.tokens))
        self.tokens.append(b"\xff" + REPEATS_TOKEN.encode())

    def __call__(self, text: Any) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        # Some vocabularies put a space before a text; this one goes on from another.
        lead = self._encode(self._lead) if self._lead else []
        return self._encode(self._lead + text)[len(lead) :]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_bos=False, parse_special=False)


def _vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    ends = [token for token in range(tokenizer.vocabulary) if tokenizer.is_end(token)]
    if not ends:
        raise InvalidRequest("the model's vocabulary has no end token, which grammars need")
    wrapper = TokenizerWrapper(_Words(tokenizer, ends))
    return LLTokenizer(wrapper, n_vocab=tokenizer.vocabulary + 1, eos_token=ends)
