"""A larger cache for a loaded model, when its worker asks for one.

Owns the order: the memory that is free, then that of idle models. Knows the memory plan, no
process.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from runner.models.memory_estimate import gib
from runner.models.memory_plan import MemoryBudget
from runner.models.resident import Load

log = logging.getLogger("hearth.models")


async def grow_pool(
    load: Load,
    tokens: int,
    budget: Callable[[], MemoryBudget],
    evict_idle: Callable[[], Awaitable[bool]],
) -> int:
    """How many tokens the load's cache may have from here on: tokens at least, or as many as
    before where memory does not allow it. Its plan says so at once. budget: beside all that is
    loaded. evict_idle: ends the model that was idle for longest; False: there is none."""
    pool = load.plan.load_plan.pool_tokens
    most = load.plan.load_plan.max_pool_tokens or pool
    while pool < tokens <= most and load.users and not load.closing:
        free_bytes = budget().free_bytes
        grown = load.plan.grown(tokens, free_bytes)
        if grown is not None:
            load.plan = grown
            now, size = grown.load_plan.pool_tokens, gib(grown.estimate.cache_bytes)
            log.info("%s: the cache grows from %d to %d tokens, %s", load.name, pool, now, size)
            return now
        if not await evict_idle():
            log.warning(
                "%s: no memory for a cache of %d tokens, it stays at %d: %s are free",
                *(load.name, tokens, pool, gib(free_bytes)),
            )
            break
    return pool
