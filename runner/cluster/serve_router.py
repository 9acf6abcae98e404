"""The router of Ray Serve for replicas of models: a call goes to the replica that it names.

Which one that is the ingress decides (routing.py), by what Serve does not know: prompts. A replica
that is being drained gets the calls of its open sessions, but is not told of any more.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ray.serve.request_router import RequestRouter

from runner.cluster import membership
from runner.errors import WorkerCrashed

MAX_DRAINING: Final = 64
WAIT_S: Final = 0.1


class TargetRouter(RequestRouter):  # type: ignore[misc]
    """Sends a call to the replica that its first argument names; "": to any."""

    def initialize_state(self, **_: Any) -> None:
        """Called by Serve."""
        self._draining: dict[Any, Any] = {}

    def update_replicas(self, replicas: list[Any]) -> None:
        """Called by Serve with those that are ready."""
        ready = {each.replica_id: each for each in replicas}
        gone = {id: each for id, each in self.curr_replicas.items() if id not in ready}
        self._draining = {id: each for id, each in self._draining.items() if id not in ready}
        self._draining.update(gone)
        while len(self._draining) > MAX_DRAINING:
            del self._draining[next(iter(self._draining))]
        membership.announce(self.app_name, frozenset(id.unique_id for id in ready))
        super().update_replicas([*replicas, *self._draining.values()])

    def on_replica_actor_died(self, replica_id: Any) -> None:
        """Called by Serve."""
        self._draining.pop(replica_id, None)
        super().on_replica_actor_died(replica_id)

    def on_replica_actor_unavailable(self, replica_id: Any) -> None:
        """Called by Serve where a call did not get there: one that was drained has ended."""
        if replica_id in self._draining:
            self.on_replica_actor_died(replica_id)
        else:
            super().on_replica_actor_unavailable(replica_id)

    async def choose_replicas(
        self, candidate_replicas: list[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        """Called by Serve."""
        wanted = pending_request.args[0] if pending_request and pending_request.args else ""
        if not wanted:
            ready = [each for each in candidate_replicas if each.replica_id not in self._draining]
            if not ready:
                await asyncio.sleep(WAIT_S)  # Serve asks again at once
            return [ready]
        named = [each for each in candidate_replicas if each.replica_id.unique_id == wanted]
        if named:
            return [named]
        # Serve would try again for ever, in one of the few tasks that route all calls
        if not pending_request.future.done():
            pending_request.future.set_exception(WorkerCrashed(f"the replica {wanted} is gone"))
        return [candidate_replicas]  # with none it would not see that the call has ended
