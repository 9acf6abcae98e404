"""A bar on stderr for work on a known number of bytes; silent where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cli.terminal import can_colour, can_move


@contextmanager
def byte_bar(label: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yields the function to call with the number of bytes done since the last call."""
    if not can_move(sys.stderr):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(file=sys.stderr, no_color=not can_colour(sys.stderr))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total_bytes)
        yield lambda count: progress.advance(task, count)
