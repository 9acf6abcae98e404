"""Columns of a progress bar for work that is counted in bytes or in something else. Imports rich:
import it where a bar is shown."""

from __future__ import annotations

from rich.progress import DownloadColumn, Task, TransferSpeedColumn
from rich.text import Text


class AmountColumn(DownloadColumn):
    """How much of how much: "1.2/3.4 GB", or "12/291 tensors" for a task with a unit."""

    def render(self, task: Task) -> Text:
        """See ProgressColumn."""
        unit = task.fields.get("unit")
        if unit is None:
            return super().render(task)
        return Text(f"{int(task.completed)}/{int(task.total or 0)} {unit}", "progress.download")


class RateColumn(TransferSpeedColumn):
    """Bytes a second; nothing for a task with another unit."""

    def render(self, task: Task) -> Text:
        """See ProgressColumn."""
        return Text("") if task.fields.get("unit") else super().render(task)
