from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from runner.errors import CapacityError, Conflict
from runner.library import background_pulls
from runner.library.background_pulls import MAX_PULLS, MAX_RUNNING, BackgroundPulls
from runner.library.library import Library
from runner.library.transfers import Reach

REACH = Reach()


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> BackgroundPulls:
    async def endless(*_: Any, **__: Any) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(background_pulls, "pull_model", endless)
    return BackgroundPulls(cast(Library, None))


def test_so_many_run_at_once_and_so_many_are_kept(pulls: BackgroundPulls) -> None:
    async def scene() -> None:
        for number in range(MAX_PULLS):
            if number >= MAX_RUNNING:
                with pytest.raises(CapacityError, match="running in the background"):
                    pulls.start(f"m{number}", "", REACH, insecure=False)
            oldest = next(pull for pull in [*pulls.of(None), None] if _runs(pull))
            if number >= MAX_RUNNING and oldest is not None:
                await pulls.pause(oldest)
            pulls.start(f"m{number}", "", REACH, insecure=False)
        await pulls.close()
        with pytest.raises(CapacityError, match="are kept"):
            pulls.start("one more", "", REACH, insecure=False)

    asyncio.run(scene())


def _runs(pull: Any) -> bool:
    return pull is None or pull.phase == "running"


def test_each_owner_has_pulls_of_its_own(pulls: BackgroundPulls) -> None:
    async def scene() -> None:
        mine = pulls.start("m", "me", REACH, insecure=False)
        other = pulls.start("m", "you", REACH, insecure=False)
        assert pulls.start("m", "me", REACH, insecure=False) is mine
        assert list(pulls.of("me")) == [mine]
        assert pulls.find(other.number, "me") is None
        assert pulls.find(other.number, None) is other
        await pulls.close("me")
        assert (mine.phase, other.phase) == ("paused", "running")
        await pulls.remove(other)
        with pytest.raises(Conflict):
            await pulls.remove(other)
        await pulls.close()

    asyncio.run(scene())
