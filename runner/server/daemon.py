"""Runs the daemon: takes the port and the store, serves, drains on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import importlib.metadata
import json
import logging
import os
import socket
import ssl
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.datastructures import Headers

from runner.errors import HearthError, ShuttingDown
from runner.file_system import own_uid, permissions
from runner.leaf_errors import RegistryError, StoreLocked
from runner.library.files import write_private
from runner.library.library import Library
from runner.programs import end_children_with_this
from runner.server.access import has_owner_token
from runner.server.activation import passed_sockets
from runner.server.app import build_services, create_app
from runner.server.certificate import tls_context
from runner.server.connection_table import (
    ACCEPTS_AT_ONCE,
    ALWAYS_SERVED,
    ConnectionTable,
    connection_limit,
)
from runner.server.connections import BoundedProtocol
from runner.server.framing import MAX_HEAD_BYTES
from runner.server.freed_memory import (
    collect_rarely,
    receive_in_small_blocks,
    return_large_blocks,
)
from runner.server.keys import FILE_NAME, KeyRing
from runner.server.logs import set_up
from runner.server.services import Services
from runner.server.sockets import (
    QUEUE,
    ListenError,
    PortTaken,
    listen,
    raise_file_limit,
)
from runner.server.tls_handshake import TlsHandshake
from runner.setting_values import Address
from runner.settings import Settings, SettingsError, explain, load
from runner.stop_signals import on_stop

log = logging.getLogger("hearth")

EXIT_FAULT = 1
EXIT_PORT_TAKEN = 69  # EX_UNAVAILABLE
EXIT_STORE_LOCKED = 75  # EX_TEMPFAIL
_DATE_EVERY_S = 1.0
_LEAVING_EVERY_S = 0.01
_CLEAN_UP_S = 5.0  # after the drain, for last events to leave and workers to end
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def main() -> int:
    """Serve until a signal. Returns the exit code; see runner.server.__main__."""
    return_large_blocks()
    receive_in_small_blocks()
    end_children_with_this()
    try:
        settings, explained = load(), explain()
    except SettingsError as error:
        return _give_up(str(error), EXIT_FAULT)
    set_up(settings.log_level, settings.log_format)
    if not settings.sandbox:
        os.environ["HEARTH_SANDBOX"] = "0"  # which is what its children go by
    try:
        tls = tls_context(settings)
        _close_folders(settings)
        keys = KeyRing(settings.data_dir / FILE_NAME)
        is_guarded = settings.insecure_public or bool(keys)
        sockets, address = _listen(settings, is_guarded)
    except HearthError as error:
        return _give_up(error.message, EXIT_FAULT)
    except ListenError as error:
        taken = isinstance(error, PortTaken)
        return _give_up(str(error), EXIT_PORT_TAKEN if taken else EXIT_FAULT)
    with contextlib.ExitStack() as opened:
        for each in sockets:
            opened.enter_context(each)
        version = importlib.metadata.version("hearth")
        try:
            library = Library.open(settings, version)
        except RegistryError as error:
            where = f"the models are in {settings.models_dir}, or where HEARTH_MODELS says"
            locked = isinstance(error, StoreLocked)
            return _give_up(
                f"{error.message}; {where}", EXIT_STORE_LOCKED if locked else EXIT_FAULT
            )
        services = build_services(settings, address, keys, library)
        services.explained = explained
        with _state_file(services):
            return _serve(services, sockets, tls)


def _listen(settings: Settings, is_guarded: bool) -> tuple[list[socket.socket], Address]:
    """The sockets of all addresses, or those that systemd has passed on, and what clients know the
    daemon by. Raises ListenError; then all are closed."""
    passed = passed_sockets(is_guarded)
    if passed:
        wanted, found = settings.address, passed[0][1]
        is_named = wanted.port == found.port and wanted.host in (found.host, "localhost")
        address = wanted if is_named else replace(found, scheme=wanted.scheme)
        return [sock for sock, _ in passed], address
    sockets: list[socket.socket] = []
    try:
        first, address = listen(settings.address, is_guarded)
        sockets.append(first)
        for other in settings.listen:
            sockets.append(listen(other, is_guarded)[0])
    except ListenError:
        for each in sockets:
            each.close()
        raise
    return sockets, address


def _close_folders(settings: Settings) -> None:
    """What the daemon and its children make is for its user only, whatever the umask was. Folders
    that others could write to are closed to them; that of the models may belong to a group."""
    os.umask(0o077)
    for folder, closed in (
        (settings.data_dir, 0o022),
        (settings.state_dir, 0o077),
        (settings.models_dir, 0o002),
    ):
        with contextlib.suppress(OSError):
            status = folder.stat()
            is_ours = status.st_uid == own_uid() and not status.st_mode & stat.S_ISVTX
            if is_ours and permissions(status) & closed:
                folder.chmod(permissions(status) & ~closed)


def _give_up(message: str, code: int) -> int:
    print(f"hearth: {message}", file=sys.stderr)
    return code


def _serve(services: Services, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> int:
    settings = services.settings
    drain_s = settings.drain_timeout
    table = ConnectionTable(
        connection_limit(raise_file_limit()),
        lambda path, fields: (
            path in ALWAYS_SERVED or has_owner_token(Headers(raw=fields), services.owner_token)
        ),
    )
    config = uvicorn.Config(
        create_app(services, public=services.is_public),
        http=_protocol(table, tls),  # type: ignore[arg-type]
        loop="asyncio",  # not uvloop, which Ray brings along: nothing here was tried with it
        backlog=ACCEPTS_AT_ONCE,  # asyncio accepts so many before it counts them
        access_log=False,
        log_config=None,
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=None if drain_s is None else int(drain_s + _CLEAN_UP_S),
        h11_max_incomplete_event_size=2 * MAX_HEAD_BYTES,  # connections.py has the limit
    )
    server = DaemonServer(config, services, table)
    server.run(sockets=sockets)
    return server.exit_code


def _protocol(
    table: ConnectionTable, tls: ssl.SSLContext | None
) -> Callable[..., asyncio.Protocol]:
    """What each accepted connection gets."""
    bounded = functools.partial(BoundedProtocol, table)
    return bounded if tls is None else lambda **of: TlsHandshake(table, tls, bounded(**of))


class DaemonServer(uvicorn.Server):
    """uvicorn, with the daemon's own meaning of signals: the first one drains, the second one
    stops at once."""

    def __init__(self, config: uvicorn.Config, services: Services, table: ConnectionTable) -> None:
        super().__init__(config)
        self._table = table
        self.exit_code = EXIT_FAULT
        self._services = services
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the event loop."""
        loop = asyncio.get_running_loop()
        on_stop(loop, self._on_signal)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where."""
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(QUEUE)
        for sock in (sockets or ())[1:]:
            host, port = sock.getsockname()[:2]
            log.info(
                "it answers at %s too", replace(self._services.address, host=host, port=port).url
            )
        self.exit_code = 0
        gc.collect()
        gc.freeze()  # a full collection took 35 ms, each time, for what lasts as long as the daemon
        collect_rarely()
        gc.enable()
        log.info("hearth %s listens on %s, models in %s%s", self._services.version,
                 self._services.address.url, self._services.settings.models_dir,
                 " (read-only)" if self._services.library.read_only else "")  # fmt: skip

    async def main_loop(self) -> None:
        """Wait for a signal, and renew the date of answers: an idle daemon wakes once a second,
        uvicorn's ten times."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _DATE_EVERY_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the running requests end. uvicorn takes a tenth of a second even if none do, and
        looks only so often whether they have ended."""
        state = self.server_state
        for server in self.servers:
            server.close()
        for sock in sockets or ():
            sock.close()
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110
                    await asyncio.sleep(_LEAVING_EVERY_S)
        except TimeoutError:
            log.error("%d requests did not end and are cancelled", len(state.tasks))
            for task in state.tasks:
                task.cancel("the daemon has stopped")
        if not self.force_exit:
            await self.lifespan.shutdown()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS:
            closed = self._table.relieve()
            log.error("a connection was not accepted: %s", error.strerror)
            log.debug("closed %d idle connections", closed)
        else:
            loop.default_exception_handler(context)

    def _on_signal(self, number: int) -> None:
        services = self._services
        if self.should_exit:
            self.exit_code = 128 + number
            self.force_exit = True
            self._cut("the daemon was stopped")
            return
        self.should_exit = True
        self._stopping.set()
        services.draining = True
        log.info("stopping: waiting for running requests to finish")
        services.models.stop_admitting()
        services.library.transfers.cancel_all()
        for opened in list(services.websockets):
            opened.leave()
        drain_s = services.settings.drain_timeout
        if drain_s is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(
                drain_s,
                self._cut,
                f"the daemon stopped after a grace period of {drain_s:g} s",
            )

    def _cut(self, reason: str) -> None:
        models = self._services.models
        models.abort_all(ShuttingDown(reason))
        if self.force_exit:
            models.kill()


@contextlib.contextmanager
def _state_file(services: Services) -> Iterator[None]:
    """daemon.json in the state folder while the daemon runs: pid, url, version, models, and the
    token with which the commands of this user need no key."""
    path = services.settings.state_dir / "daemon.json"
    facts = {
        "pid": os.getpid(),
        "url": services.address.url,
        "version": services.version,
        "models": str(services.settings.models_dir),
        "token": services.owner_token,
    }
    _write(path, json.dumps(facts))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _write(path: Path, text: str) -> None:
    try:
        write_private(path, f"{text}\n".encode())
    except OSError as error:
        log.warning(
            "%s could not be written, so the commands do not know this daemon as theirs: %s",
            path,
            error.strerror,
        )
