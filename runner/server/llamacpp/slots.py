"""POST /slots/ID: what a slot holds is saved to a file, restored from one, or erased.

All slots of a model share one cache: what is restored is found by every request of its owner.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import importlib.metadata
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from runner.errors import HearthError, InvalidRequest, StorageFailed
from runner.library.sealed_file import (
    PIECE_BYTES,
    SECRET_FILE,
    Header,
    SealedReader,
    SealedWriter,
    read_secret,
)
from runner.models.lease import Lease
from runner.server.caller import current_caller
from runner.server.default_model import complete_model
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.leases import cache_salt, refuse_speech
from runner.server.llamacpp.answers import SlotChange
from runner.server.llamacpp.slot_files import SlotFolder
from runner.server.query import query_params
from runner.server.request_body import WireModel, parse_object, validate
from runner.server.routes import route

P = ParamSpec("P")
T = TypeVar("T")
MAX_BODY_BYTES = 16 * 1024
_ROPE = ("rope_frequency_base", "rope_frequency_scale")
_LOADED = ("backend", "kv_cache_type", "flash_attention", "gpu_layers", *_ROPE)


class SlotRequest(WireModel):
    """filename: needed to save and to restore."""

    model: str
    filename: str | None = None


@route("POST", "/slots/{id}", scope="inference", takes="application/json")
async def change_slot(http: HttpRequest) -> SlotChange:
    """Save, restore or erase a slot, by ?action=. It continues if the client disconnects, because
    the threads that write files cannot be stopped."""
    query, text = http.scope["query_string"], http.parameter("id")
    if re.fullmatch("[0-9]{1,4}", text) is None:
        raise InvalidRequest(f"{text[:20]!r} is not the number of a slot", param="id")
    services, action, number = http.services, query_params(query).get("action"), int(text)
    sent = await http.body(MAX_BODY_BYTES)
    complete = partial(complete_model, services, http.scope["path"], query)
    body = validate(parse_object(sent or b"{}"), SlotRequest, complete)
    if action not in ("save", "restore", "erase"):
        raise InvalidRequest(f"action={str(action)[:20]!r}: use save, restore or erase")
    if action != "erase" and services.settings.slot_save_path is None:
        raise HttpError(
            501, "not_supported", "slots are not saved: start the daemon with HEARTH_SLOT_SAVE_PATH"
        )
    async with services.models.lease(body.model) as lease, services.slot_transfers:
        refuse_speech(lease)
        if number >= lease.plan.max_sequences:
            raise InvalidRequest(f"there is no slot {number}", param="id")
        slot = _Slot(lease, number)
        if action == "erase":
            erased = await slot.ask("erase")
            return SlotChange(id_slot=number, n_erased=erased["erased"])
        if body.filename is None:
            raise InvalidRequest("filename is missing", param="filename")
        folder = await _stored(_folder, http)
        async with slot.transfer():
            change = slot.save if action == "save" else slot.restore
            return await change(folder, body.filename)


def _folder(http: HttpRequest) -> SlotFolder:
    settings = http.services.settings
    assert settings.slot_save_path is not None
    secret = read_secret(settings.state_dir / SECRET_FILE)
    owner = current_caller().id
    return SlotFolder(settings.slot_save_path, owner, secret, settings.max_files_size)


class _Slot:
    """A slot of a loaded model, of one owner."""

    def __init__(self, lease: Lease, number: int) -> None:
        self._lease = lease
        self._number = number

    async def ask(self, action: str, **values: Any) -> Any:
        """See runner.worker.slot_transfer."""
        key = {"cache_salt": cache_salt(self._lease), "slot": self._number}
        return await self._lease.worker.call("slot", action=action, **key, **values)

    @contextlib.asynccontextmanager
    async def transfer(self) -> AsyncIterator[None]:
        """The worker holds a state no longer than the block."""
        try:
            yield
        finally:
            with contextlib.suppress(HearthError):
                await self.ask("drop")

    async def save(self, folder: SlotFolder, name: str) -> SlotChange:
        """Raises InvalidRequest, Unsupported, HttpError 413."""
        began_s = time.monotonic()
        found = await self.ask("save")
        size, tokens = int(found["size"]), found["tokens"]
        header = {**self._header(), "tokens": tokens, "adapters": found["adapters"]}
        writer = await _stored(folder.create, name, header, size)
        try:
            await self._write(writer, size)
        finally:
            writer.discard()
        return SlotChange(
            id_slot=self._number,
            filename=name,
            n_saved=len(tokens),
            n_written=writer.size_bytes,
            timings={"save_ms": _ms(began_s)},
        )

    async def _write(self, writer: SealedWriter, size: int) -> None:
        for start in range(0, size, PIECE_BYTES):
            wanted = min(PIECE_BYTES, size - start)
            reply = await self.ask("read", start=start, size=wanted)
            data = base64.b64decode(reply["data"])
            if len(data) != wanted:
                raise ValueError(f"the worker gave {len(data)} bytes of a state for {wanted}")
            await _stored(writer.write, data)
        await _stored(writer.publish)

    async def restore(self, folder: SlotFolder, name: str) -> SlotChange:
        """Raises InvalidRequest, Unsupported."""
        began_s = time.monotonic()
        reader = await asyncio.to_thread(folder.open, name)
        try:
            tokens = await self._read(reader, name)
        finally:
            reader.close()
        return SlotChange(
            id_slot=self._number,
            filename=name,
            n_restored=tokens,
            n_read=reader.size_bytes,
            timings={"restore_ms": _ms(began_s)},
        )

    async def _read(self, reader: SealedReader, name: str) -> int:
        header, size = reader.header, reader.content_bytes
        wanted = self._header()
        if differs := [key for key in wanted if header.get(key) != wanted[key]]:
            raise InvalidRequest(
                f"{name!r} was saved with another {' and '.join(differs)} than is used now",
                param="filename",
            )
        tokens = header["tokens"]
        await self.ask("begin", size=size, tokens=len(tokens))
        for start in range(0, size, PIECE_BYTES):
            data = base64.b64encode(await asyncio.to_thread(reader.read, size - start)).decode()
            await self.ask("write", start=start, data=data)
        await self.ask("restore", tokens=tokens, adapters=header["adapters"])
        return len(tokens)

    def _header(self) -> Header:
        """What must be the same for a state to be good."""
        plan = self._lease.plan
        quantized = {"quantize": plan.quantize} if plan.quantize is not None else {}
        return {
            "owner": current_caller().id,
            "model": str(self._lease.bundle.digest),
            "llama.cpp": importlib.metadata.version("llama-cpp-python"),
            "load": {name: getattr(plan, name) for name in _LOADED} | quantized,
        }


async def _stored(work: Callable[P, T], *values: P.args, **more: P.kwargs) -> T:
    """What work on the disk gives, in a thread. Raises StorageFailed."""
    try:
        return await asyncio.to_thread(work, *values, **more)
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0)
        raise StorageFailed(f"the slot cannot be saved: {error.strerror}", errno=code) from None


def _ms(began_s: float) -> float:
    return round((time.monotonic() - began_s) * 1000, 3)
