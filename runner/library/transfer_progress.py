"""A transfer as one watcher sees it: each step once, files as they grow, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from registry.names import Name
from registry.progress import Progress
from registry.pull import BuildProgress, PullState
from registry.transfer.download import BlobProgress
from registry.transfer.shared_task import SharedTask
from runner.errors import ShuttingDown
from runner.library.progress import ReportProgress

_TICK_S = 0.06  # as often as Ollama


async def wait_for_pull(
    transfer: SharedTask[PullState], on_tick: Callable[[], Awaitable[None]]
) -> Name:
    """Wait for a transfer, with on_tick now and then and once after its end; the name of its
    model. Raises what ended it, and ShuttingDown."""
    while True:
        ended = transfer.task.done()
        await on_tick()
        if ended:
            break
        await asyncio.wait({transfer.task}, timeout=_TICK_S)
    if transfer.task.cancelled():
        raise ShuttingDown("the transfer was cancelled; the received data is kept")
    transfer.task.result()
    assert transfer.state.name is not None
    return transfer.state.name


async def follow(transfer: SharedTask[PullState], verb: str, report: ReportProgress) -> Name:
    """Report a transfer up to its end, which the caller reports; the name of its model. verb: of
    the lines about files. Raises what ended it, and ShuttingDown."""
    progress = TransferProgress(transfer.state, verb)

    async def report_news() -> None:
        for step in progress.news():
            await report(step)

    return await wait_for_pull(transfer, report_news)


class TransferProgress:
    """What one watcher has seen of a transfer."""

    def __init__(self, state: PullState, verb: str) -> None:
        self._state = state
        self._verb = verb
        self._next = 0
        self._last: Progress | None = None

    def news(self) -> Iterator[Progress]:
        """What is new since the last call, without the success at the end."""
        steps = self._state.steps
        while self._next < len(steps):
            step = steps[self._next]
            if isinstance(step, str):
                if step != "success":
                    yield Progress(step)
            else:
                progress = step.progress if isinstance(step, BuildProgress) else self._file(step)
                if progress != self._last:
                    self._last = progress
                    yield progress
                if not step.done and self._next == len(steps) - 1:
                    return
            self._next += 1

    def _file(self, step: BlobProgress) -> Progress:
        return Progress(
            f"{self._verb} {step.title}",
            step.completed_bytes or None,
            step.total_bytes,
            digest=None if step.digest is None else str(step.digest),
            resumed=step.resumed_bytes or None,
        )
