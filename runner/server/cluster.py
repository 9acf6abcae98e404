"""The daemon's cluster, which is imported with the first use of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from runner.errors import Conflict
from runner.library.library import Library
from runner.models.lease import AskedModel
from runner.models.placement import Placed, Placement
from runner.settings import Settings

if TYPE_CHECKING:
    from runner.cluster.cluster import Cluster

NODE_FILE = "cluster-node.json"  # in the state folder while a node runs on this machine


class ClusterAccess(Placement):
    """Leads to the cluster of which a node runs on this machine, if one does."""

    def __init__(
        self, settings: Settings, library: Library, on_deployed: Callable[[str], Awaitable[None]]
    ) -> None:
        """on_deployed: see Cluster."""
        self._settings, self._library, self._on_deployed = settings, library, on_deployed
        self._cluster: Cluster | None = None

    @property
    def is_joined(self) -> bool:
        """Whether `hearth cluster start` was run on this machine."""
        return (self._settings.state_dir / NODE_FILE).is_file()

    @property
    def is_local(self) -> bool:
        return not self.is_joined

    def opened(self) -> Cluster:
        """The cluster. Raises Conflict where there is none."""
        if not self.is_joined:
            raise Conflict("this machine is in no cluster; start one with `hearth cluster start`")
        if self._cluster is None:
            from runner.cluster.cluster import Cluster

            self._cluster = Cluster(
                self._settings, self._library, self._library.version, self._on_deployed
            )
        return self._cluster

    async def place(self, asked: AskedModel) -> Placed | None:
        return await self.opened().place(asked) if self.is_joined else None

    async def close(self) -> None:
        """Disconnect because the daemon stops; the cluster keeps running."""
        if self._cluster is not None:
            await self._cluster.close()
