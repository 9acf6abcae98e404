"""The files of a transfer as shown to the user: each large one separately, small ones together.

Owns what is counted together. Shows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.replies import TaskProgress

SMALL_BYTES = 10_000_000


@dataclass(slots=True)
class FileGroup:
    """What one line or bar shows: a step, or everything small that the same is done with. parts:
    done and total by step, in bytes or in the line's unit."""

    verb: str
    is_joint: bool = True
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Of all parts."""
        return sum(done for done, _ in self.parts.values())

    @property
    def total(self) -> int:
        """Of all parts."""
        return sum(total for _, total in self.parts.values())

    @property
    def label(self) -> str:
        """What is done with what: "pulling model.safetensors", "pulling 12 files"."""
        if len(self.parts) == 1:
            return next(iter(self.parts))
        return f"{self.verb} {len(self.parts)} files"


@dataclass(slots=True)
class FileGroups:
    """The groups so far, by their step; that of small files by its verb and "files"."""

    by_key: dict[str, FileGroup] = field(default_factory=dict)

    def note(self, line: TaskProgress) -> tuple[str, FileGroup]:
        """Take a line that has a total; gives its group and the key of that."""
        step, total = line.get("status", ""), line.get("total", 0)
        verb, _, name = step.partition(" ")
        is_joint = bool(name) and total < SMALL_BYTES and "unit" not in line
        key = f"{verb} files" if is_joint else step
        group = self.by_key.setdefault(key, FileGroup(verb, is_joint))
        group.parts[step] = (line.get("completed", 0), total)
        return key, group

    def fold(self) -> tuple[str, str] | None:
        """Let the oldest step that has ended join the small files of its verb; gives both keys."""
        for key, group in self.by_key.items():
            if not group.is_joint and group.done >= group.total:
                del self.by_key[key]
                joint = f"{group.verb} files"
                self.by_key.setdefault(joint, FileGroup(group.verb)).parts |= group.parts
                return key, joint
        return None

    def whole(self, verbs: tuple[str, ...]) -> FileGroup:
        """All groups with these verbs in one."""
        whole = FileGroup("")
        for group in self.by_key.values():
            whole.parts |= group.parts if group.verb in verbs else {}
        return whole
