"""Shows a pull or a push: bars on a terminal, otherwise a line per second, JSON, or nothing.

Knows the lines of the daemon, not where models come from.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from cli.file_groups import FileGroup, FileGroups
from cli.render import size
from cli.terminal import can_colour, can_move, is_terminal, status

if TYPE_CHECKING:
    from rich.progress import TaskID

    from runner.client import Client, ClientError
    from runner.replies import TaskProgress

Style = Literal["bars", "lines", "json", "quiet"]
_LINE_EVERY_S = 1.0
_RATE_OVER_S = 5.0
_FILES = ("pulling", "pushing")  # a transfer's files add up, the steps of a build do not
_LAYERS = ("using existing layer ", "creating new layer ")  # of interest to programs only
_MAX_BARS = 6


class ProgressView:
    """A way to show progress; this one shows nothing."""

    def show(self, line: TaskProgress) -> None:
        """Take one line of the daemon."""

    def close(self) -> None:
        """No more lines come."""


def style_for(as_json: bool, quiet: bool) -> Style:
    """How to show progress, by the options and what stderr is."""
    if as_json:
        return "json"
    if quiet:
        return "quiet"
    return "bars" if can_move(sys.stderr) else "lines"


def follow(
    lines: Generator[Any, None, None], style: Style, tell: Callable[[Any], bool] = lambda _: False
) -> Any:
    """Show all lines; gives the last one. tell: prints those that are no progress, and says
    whether a line is such a one; programs get all as they are. Ctrl-C and errors close lines,
    which ends the task, and are raised again."""
    last: dict[str, Any] = {}
    with closing(view_for(style)) as view, closing(lines):
        for last in lines:
            if style == "json" or not tell(last):
                view.show(last)  # type: ignore[arg-type]
    return last


def is_to_be_pulled(error: ClientError, model: str) -> bool:
    """Whether a request failed because the model is not installed: its name is unknown, or it
    is written as where it comes from."""
    is_origin = "://" in model or "@" in model
    return error.code == "model_not_found" or (error.code == "invalid_value" and is_origin)


def pull_missing(client: Client, model: str, missing: ClientError) -> str:
    """Pull a model that a command needs; gives its name. Raises missing where nothing may be
    pulled, and what the pull raises."""
    from runner.client import ClientError

    try:
        pulled = follow(client.pull(model), style_for(as_json=False, quiet=False))
        return str(pulled.get("model", model))
    except ClientError as error:
        if error.code == "offline":
            raise missing from None
        near = [str(name) for name in missing.details.get("suggestions") or ()]
        if not near:
            raise
        hint = f"{error.message}. Did you mean {' or '.join(near)}?"
        raise ClientError(hint, code=error.code) from None


def view_for(style: Style) -> ProgressView:
    """A view of that style. Close it."""
    views: dict[str, Callable[[], ProgressView]] = {
        "bars": BarProgress,
        "lines": LineProgress,
        "json": JsonProgress,
        "quiet": ProgressView,
    }
    return views[style]()


class JsonProgress(ProgressView):
    """The daemon's lines on stdout, as they are."""

    def show(self, line: TaskProgress) -> None:
        print(json.dumps(line, ensure_ascii=False), flush=True)


@dataclass(slots=True)
class TransferRate:
    """The bytes a second of the last seconds."""

    _points: list[tuple[float, int]] = field(default_factory=list)

    def note(self, now_s: float, done_bytes: int) -> None:
        """Take a measurement."""
        self._points = [p for p in self._points if now_s - p[0] <= _RATE_OVER_S]
        self._points.append((now_s, done_bytes))

    @property
    def per_s(self) -> float:
        """Bytes a second; 0 when there is too little to tell."""
        (since_s, before), (now_s, after) = self._points[0], self._points[-1]
        return max(0.0, (after - before) / (now_s - since_s)) if now_s > since_s else 0.0


class LineProgress(ProgressView):
    """One line a second on stderr, one for each step, and one for all small files of a step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._step = ""
        self._shown_s = 0.0
        self._rate = TransferRate()
        self._groups = FileGroups()
        self._small: FileGroup | None = None
        self._said = ""

    def show(self, line: TaskProgress) -> None:
        now_s, step = self._clock(), line.get("status", "")
        group = self._groups.note(line)[1] if "total" in line else None
        if group is not self._small:
            self.close()
        key = f"{group.verb} files" if group is not None and group.is_joint else step
        if key != self._step:
            self._step, self._rate, self._shown_s = key, TransferRate(), now_s
            if key == step and not step.startswith(_LAYERS):
                self._say(f"{step}{resumed(line)}")
        if group is None:
            return
        self._small = group if group.is_joint else None
        self._rate.note(now_s, group.done)
        is_ended = group.done >= group.total and not group.is_joint  # more small ones may come
        if is_ended or now_s - self._shown_s >= _LINE_EVERY_S:
            self._shown_s = now_s
            self._say(f"{group.label}: {self._figures(group, line.get('unit'))}")

    def close(self) -> None:
        small, self._small = self._small, None
        if small is not None:
            self._say(f"{small.label}: {self._figures(small, None)}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            status(text)

    def _figures(self, group: FileGroup, unit: str | None) -> str:
        done, total = group.done, group.total
        text = f"{done * 100 // max(total, 1)}% of {f'{total} {unit}' if unit else size(total)}"
        rate = self._rate.per_s
        if rate and done < total:
            speed = "" if unit else f", {size(rate)}/s"
            text += f"{speed}, {left((total - done) / rate)} left"
        return text


class BarProgress(ProgressView):
    """A bar for each large file, few at a time, one for the others, and one for all so far."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Table

        from cli.progress_columns import AmountColumn, RateColumn

        console = Console(file=sys.stderr, no_color=not can_colour(sys.stderr))
        self._table = Table(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            AmountColumn(),
            RateColumn(),
            TimeRemainingColumn(),
            console=console,
            redirect_stdout=is_terminal(sys.stdout),  # a file or a pipe gets the results
        )
        self._groups = FileGroups()
        self._tasks: dict[str, TaskID] = {}
        self._table.start()

    def show(self, line: TaskProgress) -> None:
        step = line.get("status", "")
        if "total" not in line:
            if not step.startswith(_LAYERS):
                self._table.console.print(step, markup=False, highlight=False)
            return
        key, group = self._groups.note(line)
        self._show(key, f"{group.label}{resumed(line)}", group, line.get("unit"))
        folded = self._groups.fold() if len(self._tasks) > _MAX_BARS else None
        if folded is not None:
            step, joint = folded
            self._table.remove_task(self._tasks.pop(step))
            self._show(joint, self._groups.by_key[joint].label, self._groups.by_key[joint])
        if group.verb in _FILES and len(self._groups.by_key) > 1:
            self._show("total", "total", self._groups.whole(_FILES))

    def close(self) -> None:
        self._table.stop()

    def _show(self, key: str, label: str, group: FileGroup, unit: str | None = None) -> None:
        if key not in self._tasks:
            self._tasks[key] = self._table.add_task(label, total=group.total, unit=unit)
        task = self._tasks[key]
        self._table.update(task, description=label, completed=group.done, total=group.total)


def resumed(line: TaskProgress) -> str:
    """What to say of a file of which an earlier run has left a part."""
    kept = line.get("resumed")
    return f", resuming at {size(kept)}" if kept else ""


def left(seconds: float) -> str:
    """A time to wait: "12 s", "3 min", "2 h 10 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
