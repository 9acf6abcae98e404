"""Which replica gets a request: the one that knows most of its prompt, unless it is too busy.

Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2018), with the longest known
prefix in the place of the hash: no replica gets more than BOUND times its share of what is in
flight, and at least SLACK more than the one that has least. Ray's PrefixCacheAffinityRouter follows
the prefix until queues differ by a fixed count, and then forgets it; here the next best prefix
counts, and a loaded replica gets its prompts back as soon as it has room.

Pure: knows neither Ray nor sockets, nor what a replica is besides its name.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from runner.types import GenerateRequest

# Of those tried in tests/benchmarks/cluster_simulation.py: with 1.25 and 2 conversations lose their
# cache to a bound that nothing is gained by, with 2 two replicas have no bound
BOUND: Final = 1.5
SLACK: Final = 4  # more than the least loaded may have; a replica with little to do is never full
BLOCK_CHARACTERS: Final = 256
BLOCK_TOKENS: Final = 64
MAX_BLOCKS: Final = 64  # of one prompt: 16,384 characters tell prompts apart
MAX_KNOWN: Final = 65_536  # blocks, of all replicas
_HASH_BYTES: Final = 8


class Router:
    """The replicas of one model, and what each has been asked. Lives on one thread."""

    def __init__(self, bound: float = BOUND, slack: int = SLACK) -> None:
        self._bound = bound
        self._slack = slack
        self._replicas: set[str] = set()
        self._known: OrderedDict[bytes, set[str]] = OrderedDict()  # last used last

    @property
    def replicas(self) -> frozenset[str]:
        """Those that get requests."""
        return frozenset(self._replicas)

    def add(self, replica: str) -> None:
        """It gets requests from now on."""
        self._replicas.add(replica)

    def remove(self, replica: str) -> None:
        """It gets none any more, and what it knew is lost."""
        if replica in self._replicas:
            self._replicas.remove(replica)
            for holders in self._known.values():
                holders.discard(replica)

    def choose(
        self,
        blocks: Sequence[bytes],
        loads: Mapping[str, int],
        weight: int = 1,
        but: Iterable[str] = (),
    ) -> str | None:
        """The replica for a prompt with these blocks, see blocks_of, which it knows from now on.
        loads: what each has in flight. weight: the sequences of the request. but: not one of
        these. None: there is no other."""
        free = self._replicas.difference(but)
        if not free:
            return None
        least = min(loads.get(each, 0) for each in free)
        total = sum(loads.get(each, 0) for each in free) + weight
        limit = max(math.ceil(self._bound * total / len(free)), least + weight + self._slack)
        chosen = self._longest(blocks, free, loads, limit - weight)
        if chosen is None:
            first = blocks[0] if blocks else b""
            idle = [each for each in free if loads.get(each, 0) == least]
            chosen = max(idle, key=lambda each: _score(each, first))
        self._learn(blocks, chosen)
        return chosen

    def _longest(
        self, blocks: Sequence[bytes], free: set[str], loads: Mapping[str, int], most: int
    ) -> str | None:
        """The least loaded of those that know most of the prompt and have room."""
        room = {each for each in free if loads.get(each, 0) <= most}
        for block in reversed(blocks):
            if able := self._known.get(block, set()) & room:
                return min(able, key=lambda each: (loads.get(each, 0), each))
        return None

    def _learn(self, blocks: Sequence[bytes], replica: str) -> None:
        for block in reversed(blocks):  # the beginnings, which many share, are kept longest
            self._known.setdefault(block, set()).add(replica)
            self._known.move_to_end(block)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


def blocks_of(request: GenerateRequest) -> list[bytes]:
    """A hash for each block of the prompt, with all that precedes it. Equal ones of requests that
    may share what is computed: the salt is part of them."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    digest.update(f"{request.cache_salt}\0{request.template}\0".encode("utf-8", "surrogatepass"))
    blocks: list[bytes] = []
    tokens = request.tokens or request.preceding
    for start in range(0, min(len(tokens), MAX_BLOCKS * BLOCK_TOKENS), BLOCK_TOKENS):
        digest.update(repr(tokens[start : start + BLOCK_TOKENS]).encode())
        blocks.append(digest.copy().digest())
    text = _text(request)
    left = max(0, MAX_BLOCKS - len(blocks)) * BLOCK_CHARACTERS
    for start in range(0, min(len(text), left), BLOCK_CHARACTERS):
        part = text[start : start + BLOCK_CHARACTERS]
        digest.update(part.encode("utf-8", "surrogatepass"))
        blocks.append(digest.copy().digest())
    return blocks


def _text(request: GenerateRequest) -> str:
    """What is rendered, in the order of most templates: tools, then the turns."""
    limit = MAX_BLOCKS * BLOCK_CHARACTERS
    if request.text is not None:
        return request.text[:limit]
    if request.infill is not None:
        return request.infill.prefix[:limit]
    parts, size = [repr(tool) for tool in request.tools], 0
    for message in request.messages or ():
        parts.append(f"\0{message.role}\0{message.content[:limit]}")
        size += len(message.content)
        if size >= limit:
            break
    return "".join(parts)[:limit]


def _score(replica: str, block: bytes) -> bytes:
    """Rendezvous hashing: several ingresses that know nothing yet agree on one replica."""
    return hashlib.blake2b(replica.encode() + b"\0" + block, digest_size=_HASH_BYTES).digest()
