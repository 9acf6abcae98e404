"""The daemon: whether it answers, what else holds its port, who can reach it, its service."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

import psutil

from cli.addresses import is_local, spoken_plainly
from cli.connection import new_client
from cli.daemon import process_of, running
from cli.doctor.finding import Finding, ok, problem, warning
from cli.errors import CliError
from cli.private_files import read_regular
from cli.render import span
from runner.authority import is_loopback
from runner.client import Client, ClientError, ConnectionLost, NotHearth
from runner.settings import Settings

if TYPE_CHECKING:
    from runner.replies import JsonObject

_PORT = "set HEARTH_HOST to another address, such as 127.0.0.1:"
_COMMAND_CHARS = 100
_SOON = timedelta(days=14)


def check_daemon(settings: Settings) -> Iterator[Finding]:
    """Whether hearth's daemon answers at its address, and is the one of these settings."""
    client = new_client(settings)
    port = settings.address.port
    try:
        about = running(client)
    except NotHearth as error:
        mend = f"{_PORT}{port + 1}; or end it: {_end_of(port)}"
        yield problem("port", f"{error.message.split('. ')[0]}; it is {holder(port)}", mend)
    except ConnectionLost:
        text = f"{holder(port)} holds {client.base_url} and does not respond"
        yield problem("port", text, _end_of(port))
    except ClientError as error:
        said, _, mend = error.message.partition(". ")
        yield problem("port", said, mend or "hearth status")
    else:
        if about is None:
            yield ok("daemon", f"none is running at {client.base_url}; the next command starts one")
        else:
            yield _of_running(settings, client, about)


def _of_running(settings: Settings, client: Client, about: JsonObject) -> Finding:
    text = f"{about['hearth']} at {client.base_url}, up {span(float(about['uptime_s']))}"
    if not is_local(spoken_plainly(settings)):
        return ok("daemon", f"{text}, elsewhere")
    if about["hearth"] != version("hearth"):
        mend = "hearth shutdown; the next command starts the new one"
        return warning("daemon", f"{text}: this command is version {version('hearth')}", mend)
    if about["store"] != str(settings.models_dir.absolute()):
        mend = "unset HEARTH_HOME and HEARTH_MODELS, or: hearth shutdown"
        text += f": its models are in {about['store']}, those of this shell in "
        return warning("daemon", f"{text}{settings.models_dir}", mend)
    if about.get("read_only"):
        mend = f"make {about['store']} writable, then: hearth shutdown"
        return warning("daemon", f"{text}: it cannot write to its store", mend)
    return ok("daemon", text)


def holder(port: int) -> str:
    """The process that listens at a TCP port of this machine, in words."""
    process = _listener(port)
    if process is None:
        return f"a process of another user, or of another machine (sudo ss -ltnp sport = :{port})"
    try:
        words = textwrap.shorten(" ".join(process.cmdline()[:3]), _COMMAND_CHARS) or process.name()
        state = ", stopped" if process.status() == psutil.STATUS_STOPPED else ""
        return f"process {process.pid} of {process.username()} ({words}{state})"
    except psutil.Error:
        return f"process {process.pid}"


def _listener(port: int) -> psutil.Process | None:
    try:
        sockets = [s for s in psutil.net_connections("tcp") if s.status == psutil.CONN_LISTEN]
        pids = [s.pid for s in sockets if s.laddr and s.laddr.port == port]
        return psutil.Process(next(filter(None, pids)))
    except (psutil.Error, StopIteration):
        return None


def _end_of(port: int) -> str:
    process = _listener(port)
    try:
        stopped = process is not None and process.status() == psutil.STATUS_STOPPED
    except psutil.Error:
        stopped = False
    if process is None:
        return f"end the program at port {port}"
    return f"kill -{'CONT' if stopped else 'TERM'} {process.pid}"


def check_exposure(settings: Settings) -> Iterator[Finding]:
    """Who can reach the daemon, and what they need for that. A running daemon is asked for its
    sockets, because its settings may differ from those of this shell."""
    hosts, scheme = _listening(settings)
    public = sorted(host for host in hosts if not is_loopback(host))
    keys = _key_count(settings)
    if not public:
        yield ok("exposure", "only this machine reaches the daemon"
                             + (f", with one of {keys} keys" if keys else ""))  # fmt: skip
        if settings.insecure_local and not keys:
            yield warning("exposure", "HEARTH_INSECURE_LOCAL=1: every user of this machine has "
                                      "full access", "unset HEARTH_INSECURE_LOCAL")  # fmt: skip
    elif not keys:
        text = f"{', '.join(public)} is open to other machines, and there is no API key"
        mend = "hearth key add NAME, or set HEARTH_HOST=127.0.0.1; then: hearth shutdown"
        yield problem("exposure", text, mend)
    elif scheme != "https":
        text = f"{', '.join(public)} is open to other machines, and keys and texts are not "
        yield warning("exposure", f"{text}encrypted", "set HEARTH_TLS_CERT and HEARTH_TLS_KEY")
    else:
        yield ok("exposure", f"{', '.join(public)}, with HTTPS and {keys} keys")
    yield from _certificate(settings)


def _listening(settings: Settings) -> tuple[set[str], str]:
    """The addresses at which the daemon listens, or would, and its scheme."""
    told = {settings.address.host, *(each.host for each in settings.listen)}
    client = new_client(settings)
    try:
        about = running(client)
        if about is None:
            return told, settings.address.scheme
        sockets = process_of(client, about).net_connections("tcp")
    except (ClientError, CliError, psutil.Error):
        return told, settings.address.scheme
    found = {str(each.laddr.ip) for each in sockets if each.status == psutil.CONN_LISTEN}
    return found or told, client.base_url.partition("://")[0]


def _key_count(settings: Settings) -> int:
    try:
        keys = json.loads(read_regular(settings.data_dir / "keys.json"))
        return len(keys) if isinstance(keys, list) else 0
    except (OSError, ValueError, RecursionError):
        return 0


def _certificate(settings: Settings) -> Iterator[Finding]:
    if settings.tls_cert is None:
        return
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(read_regular(settings.tls_cert))
    except (OSError, ValueError) as error:
        mend = "set HEARTH_TLS_CERT to a PEM file with a certificate"
        yield problem("tls", f"{settings.tls_cert} cannot be read: {error}", mend)
        return
    left = found.not_valid_after_utc - datetime.now(UTC)
    text = f"the certificate is valid until {found.not_valid_after_utc:%Y-%m-%d}"
    renew = "renew it, then: hearth shutdown"
    if left < timedelta():
        yield problem("tls", text, renew)
    elif left < _SOON:
        yield warning("tls", text, renew)
    else:
        yield ok("tls", text)


def check_service(settings: Settings) -> Iterator[Finding]:
    """Whether the daemon is a service, and that one runs."""
    from cli.service.choice import find_manager

    try:
        manager = find_manager()
        state = manager.state()
    except CliError as error:
        yield ok("service", f"none: {error.message}")
        return
    if not state.installed:
        yield ok("service", "not installed; `hearth service install` starts the daemon at login")
    elif state.waiting:
        yield ok("service", f"{manager.name} starts it with the first request")
    elif state.pid is None:
        text = f"{manager.name} has hearth's service and does not run it"
        yield warning("service", text, "hearth logs, then: hearth service install")
    else:
        yield _beside(settings, manager.name, state.pid)


def _beside(settings: Settings, name: str, pid: int) -> Finding:
    try:
        about = running(new_client(settings))
    except ClientError:
        about = None
    if about is not None and about["pid"] != pid:
        text = f"{name} runs process {pid}, and another daemon, {about['pid']}, answers here"
        return warning("service", text, "hearth shutdown, then: hearth service install")
    return ok("service", f"{name} runs it, process {pid}")
