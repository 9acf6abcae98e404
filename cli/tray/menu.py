"""What the tray's menu offers. Knows no D-Bus."""

from __future__ import annotations

from dataclasses import dataclass

from cli.tray.daemon_state import DaemonState

QUIT = "quit"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the menu. key: which it is, while its label may change. words: the verb of hearth
    that it runs, with its arguments; none: nothing, or QUIT."""

    key: str
    label: str
    is_enabled: bool = True
    words: tuple[str, ...] = ()

    @property
    def is_separator(self) -> bool:
        """Whether it only separates."""
        return not self.label


def entries(state: DaemonState) -> tuple[Entry, ...]:
    """The menu, from top to bottom."""
    models = [
        Entry(f"unload {each.name}", f"Unload {each.name} ({each.memory})",
              words=("stop", "--", each.name))
        for each in state.models
    ]  # fmt: skip
    return (
        Entry("summary", _shortened(state.summary), is_enabled=False),
        *models,
        Entry("separator 1", ""),
        Entry("open", "Open page", words=("open",)),
        Entry("unload all", "Unload all models", bool(models), ("stop", "--all")),
        Entry("separator 2", ""),
        Entry("stop", "Stop hearth", state.is_running, ("stop", "--daemon")),
        Entry(QUIT, "Quit tray"),
    )


def _shortened(text: str) -> str:
    """As much of a message as a menu can hold."""
    line = text.partition("\n")[0]
    return line if len(line) <= 80 else f"{line[:79]}…"
