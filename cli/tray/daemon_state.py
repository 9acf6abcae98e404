"""What the tray tells of the daemon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.render import size
from runner.settings import Settings

if TYPE_CHECKING:
    from runner.replies import RunningModelEntry


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory. size_bytes: None where another model holds its memory."""

    name: str
    size_bytes: int | None
    is_loading: bool = False

    @property
    def memory(self) -> str:
        """Its memory in words."""
        if self.is_loading:
            return "loading"
        return "shared" if self.size_bytes is None else size(self.size_bytes)


@dataclass(frozen=True, slots=True)
class DaemonState:
    """fault: why nothing is known of it."""

    is_running: bool = False
    models: tuple[LoadedModel, ...] = ()
    fault: str | None = None

    @property
    def summary(self) -> str:
        """In one line."""
        if self.fault is not None:
            return self.fault
        if not self.is_running:
            return "hearth is not running"
        if not self.models:
            return "no model is in memory"
        count = "1 model" if len(self.models) == 1 else f"{len(self.models)} models"
        return f"{count} in memory, {size(sum(each.size_bytes or 0 for each in self.models))}"


def observe(settings: Settings) -> DaemonState:
    """Ask the daemon. One that does not run is not started, neither by its service's socket."""
    from cli.connection import new_client
    from cli.daemon import running
    from cli.errors import CliError, explain
    from runner.client import ClientError

    client = new_client(settings)
    try:
        if running(client) is None:
            return DaemonState()
        return DaemonState(is_running=True, models=tuple(map(_loaded, client.ps())))
    except (ClientError, CliError) as error:
        return DaemonState(fault=explain(error)[0])


def _loaded(model: RunningModelEntry) -> LoadedModel:
    own = None if "shares_memory_of" in model else model["size"]
    return LoadedModel(model["name"], own, model["state"] == "loading")
