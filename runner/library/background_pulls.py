"""Pulls that go on when the client that asked for them has left, and can be paused.

A pause ends the transfer and keeps what has arrived, from which the next run goes on. Known to this
daemon only: after its end a pull of the same model goes on likewise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from registry.pull import PullState
from runner.cancellation import wait_ended
from runner.errors import CapacityError, Conflict, HearthError
from runner.leaf_errors import as_hearth_error
from runner.library.library import Library
from runner.library.progress import Progress
from runner.library.pull import PullOptions, pull_model
from runner.library.transfers import Reach

log = logging.getLogger("hearth.library")

MAX_PULLS = 64  # that are known, the ended ones too
MAX_RUNNING = 8
PullPhase = Literal["running", "paused", "done", "failed"]


@dataclass(slots=True, eq=False)
class BackgroundPull:
    """A pull. text: what was asked for; owner: see Caller.id. status, completed and total: of its
    last line; name: what the model is called here, once it is there; error: why it has failed."""

    number: int
    text: str
    owner: str
    reach: Reach
    insecure: bool
    phase: PullPhase = "paused"
    status: str = ""
    completed_bytes: int | None = None
    total_bytes: int | None = None
    name: str | None = None
    error: str | None = None
    transfer: PullState | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class BackgroundPulls:
    """Those of a daemon."""

    library: Library
    _pulls: dict[int, BackgroundPull] = field(default_factory=dict)
    _count: int = 0

    def of(self, owner: str | None) -> Iterator[BackgroundPull]:
        """An owner's, in their order; None: all."""
        return iter([pull for pull in self._pulls.values() if owner in (None, pull.owner)])

    def find(self, number: int, owner: str | None) -> BackgroundPull | None:
        """One of those."""
        return next((pull for pull in self.of(owner) if pull.number == number), None)

    def start(self, text: str, owner: str, reach: Reach, insecure: bool) -> BackgroundPull:
        """Begin a pull; the same one again goes on. Raises CapacityError for too many."""
        for pull in self.of(owner):
            if (pull.text, pull.insecure) == (text, insecure) and pull.phase != "done":
                self.resume(pull)
                return pull
        self._make_room()
        self._count += 1
        pull = BackgroundPull(self._count, text, owner, reach, insecure)
        self.resume(pull)
        self._pulls[pull.number] = pull
        return pull

    def resume(self, pull: BackgroundPull) -> None:
        """Let a pull that was paused or has failed go on. Raises CapacityError for too many."""
        if pull.phase in ("running", "done"):
            return
        if sum(each.phase == "running" for each in self._pulls.values()) >= MAX_RUNNING:
            raise CapacityError(
                f"{MAX_RUNNING} pulls are running in the background; wait for one, or pause it"
            )
        pull.phase, pull.error = "running", None
        pull.task = asyncio.create_task(self._run(pull))

    async def pause(self, pull: BackgroundPull) -> None:
        """End a transfer and keep what has arrived."""
        if pull.phase == "running" and pull.task is not None:
            pull.phase = "paused"
            pull.task.cancel()
            await wait_ended(pull.task)

    async def remove(self, pull: BackgroundPull) -> None:
        """Forget a pull; one that has not come to its end is ended, and what has arrived goes.
        Raises Conflict while it is removed already, StoreError."""
        if self._pulls.pop(pull.number, None) is None:
            raise Conflict(f"pull {pull.number} is being removed")
        await self.pause(pull)
        if pull.phase != "done" and pull.transfer is not None:
            await self.library.transfers.discard(pull.transfer)

    async def close(self, owner: str | None = None) -> None:
        """Pause an owner's, None: all."""
        await asyncio.gather(*(self.pause(pull) for pull in self.of(owner)))

    def _make_room(self) -> None:
        if len(self._pulls) < MAX_PULLS:
            return
        ended = next((pull for pull in self._pulls.values() if pull.phase == "done"), None)
        if ended is None:
            raise CapacityError(f"{MAX_PULLS} pulls are kept; remove one that is not needed")
        del self._pulls[ended.number]

    async def _run(self, pull: BackgroundPull) -> None:
        async def report(progress: Progress) -> None:
            pull.status = progress.status
            pull.completed_bytes, pull.total_bytes = progress.completed, progress.total

        def began(state: PullState) -> None:
            pull.transfer = state

        try:
            pulled = await pull_model(
                self.library,
                pull.text,
                report,
                reach=pull.reach,
                options=PullOptions(pull.insecure, began=began),
            )
        except Exception as error:
            known = error if isinstance(error, HearthError) else as_hearth_error(error)
            if pull.phase == "running":
                pull.phase = "failed"
                pull.error = "internal error; see the log" if known is None else known.message
            if known is None:
                log.error("the pull of %s failed", pull.text[:200], exc_info=error)
        else:
            pull.phase, pull.name, pull.status = "done", pulled.name.short, "success"
