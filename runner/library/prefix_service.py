"""What a worker may do with saved prefixes: find, open and save those of its own model.

A worker runs native code on untrusted files, so it has no access to the folder. It asks over a
socket, gets files that are open for reading and whose seal was checked, and what it saves goes into
a file that the daemon writes, in the folder of the model that this worker was started for. One
thread for each socket, so that the event loop never waits for the disk.
"""

from __future__ import annotations

import logging
import socket
import threading
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from runner.library.prefix_folder import PrefixFolder, SavedPart, checked_adapters
from runner.library.saved_prefixes import SavedPrefixes
from runner.types import LoadPlan
from runner.worker.passed_files import named
from runner.worker.prefix_channel import ChannelError, Message, content, pieces, receive, send

log = logging.getLogger("hearth.cache")

MAX_TOKENS = 1 << 22  # of a question
CHANNELS = 2  # to look for prefixes, and to save them
_BACKENDS = ("llamacpp",)  # whose states may be taken to another worker
_LOADED = ("backend", "kv_cache_type", "gpu_layers", "flash_attention", "native_kernels")
_ROPE = ("rope_frequency_base", "rope_frequency_scale")


@dataclass(frozen=True, slots=True)
class PrefixService:
    """Of all workers of a daemon."""

    prefixes: SavedPrefixes

    def attach(self, name: str, plan: LoadPlan) -> tuple[Callable[[socket.socket], None], ...]:
        """What serves our end of each of the worker's channels, and closes it. None at all where
        nothing of the model is saved."""
        if plan.backend not in _BACKENDS or plan.embedding or not self.prefixes.is_on:
            return ()
        return (partial(self._begin, _about(name, plan)),) * CHANNELS

    def _begin(self, about: Mapping[str, Any], channel: socket.socket) -> None:
        threading.Thread(
            target=self._serve, args=(channel, about), name="prefixes", daemon=True
        ).start()

    def _serve(self, channel: socket.socket, about: Mapping[str, Any]) -> None:
        with channel:
            try:
                first = receive(channel)
                if first is None:
                    return
                facts = {**about, "computed_by": str(first[0]["computed_by"])}
                talk = _Talk(self.prefixes, self.prefixes.folder(facts), channel)
                send(channel, {})
                while (received := receive(channel)) is not None:
                    talk.answer(received[0])
            except (ChannelError, KeyError, TypeError, ValueError, OverflowError) as error:
                log.warning("a worker of %s sent an invalid message: %s", about["model"], error)
            except OSError as error:
                log.debug("a worker of %s is gone: %s", about["model"], error)


class _Talk:
    """With one worker."""

    def __init__(
        self, prefixes: SavedPrefixes, folder: PrefixFolder, channel: socket.socket
    ) -> None:
        self._prefixes = prefixes
        self._folder = folder
        self._channel = channel

    def answer(self, message: Message) -> None:
        """Raises OSError, and what a message that is none raises."""
        match message["op"]:
            case "find":
                self._find(message)
            case "open":
                self._open(str(message["name"]))
            case "use":
                names = [str(name) for name in message["names"]]
                self._prefixes.use(self._folder, [n for n in names if self._folder.has(n)])
                send(self._channel, {})
            case "save":
                self._save(message)
            case other:
                raise ChannelError(f"{str(other)[:20]!r} is no operation")

    def _find(self, message: Message) -> None:
        tokens = _tokens(content(self._channel, min(int(message["size"]), 4 * MAX_TOKENS)))
        found = self._prefixes.match(
            self._folder, tokens, str(message["salt"]), checked_adapters(message["adapters"])
        )
        parts = [
            {
                "name": match.name,
                "length": match.length,
                "rest": match.part.tokens[match.length :].tolist(),
                "public": not match.part.owner,
                "token_s": match.part.token_s,
            }
            for match in found
        ]
        send(self._channel, {"parts": parts})

    def _open(self, name: str) -> None:
        part = self._prefixes.open(self._folder, name) if self._folder.has(name) else None
        if part is None:
            send(self._channel, {"found": False})
            return
        with part.file:
            where = {"found": True, "offset": part.offset, "bytes": part.size_bytes}
            where |= named(self._folder.path / name)
            send(self._channel, where, file=part.file.fileno())

    def _save(self, message: Message) -> None:
        count, size = int(message["count"]), int(message["size"])
        tokens = _tokens(content(self._channel, min(4 * count, size, 4 * MAX_TOKENS)))
        owner = "" if message["public"] else self._folder.owner_tag(str(message["salt"]))
        part = SavedPart(
            parent=str(message["parent"]),
            owner=owner,
            adapters=checked_adapters(message["adapters"]),
            tokens=tokens,
            token_s=float(message["token_s"]),
            whole=bool(message["whole"]),
        )
        saved = self._write(part, size - len(tokens) * tokens.itemsize)
        send(self._channel, {"name": self._folder.name(part) if saved else None})

    def _write(self, part: SavedPart, size: int) -> bool:
        """Whether the part is there now. What cannot be written is read all the same."""
        prefixes, folder = self._prefixes, self._folder
        writer = prefixes.begin(folder, part, size)
        try:
            for piece in pieces(self._channel, size):
                if writer is not None:
                    try:
                        writer.write(piece)
                    except OSError as error:
                        prefixes.discard(folder, part, writer)
                        prefixes.fail(error)
                        writer = None
        except BaseException:
            if writer is not None:
                prefixes.discard(folder, part, writer)
            raise
        if writer is not None:
            prefixes.publish(folder, part, writer)
        return folder.has(folder.name(part))


def _about(name: str, plan: LoadPlan) -> Mapping[str, Any]:
    """What the states of a worker with this plan depend on, and its model's name. Files of the
    store are named by their digest."""
    files = [Path(path).name for path in (plan.path, *(path for path, _ in plan.adapters))]
    loaded = {field: getattr(plan, field) for field in (*_LOADED, *_ROPE)}
    return {"model": name, "files": files, "load": loaded}


def _tokens(data: bytes) -> array[int]:
    tokens = array("i")
    tokens.frombytes(data)
    return tokens
