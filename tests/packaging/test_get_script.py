"""release/get.sh against a server of the test's own: what it verifies, and what it refuses."""

from __future__ import annotations

import hashlib
import io
import shutil
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.test_tls import certificate
from tests.packaging.conftest import REPOSITORY, Machine

GET = REPOSITORY / "release/get.sh"
PROGRAMS = ("curl", "tar", "gzip", "sha256sum")
ARCHIVE, WHEEL = "hearth-1.0.tar.gz", "llama_cpp_python-1.0-py3-none-manylinux_2_36_x86_64.whl"
INSTALL = 'printf "%s|" "$@" >"$HOME/installed"; ls "$HEARTH_WHEEL_INDEX" >>"$HOME/installed"'

Answer = Callable[[BaseHTTPRequestHandler], None]


class Release:
    """A release at an address of this machine. What `answers` names is answered by that instead."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        other = "hearth-1.0-py3-none-manylinux_2_36_riscv64.whl"
        self.files = {ARCHIVE: source(), WHEEL: b"wheel" * 9000, other: b"other"}
        self.files["SHA256SUMS"] = sums(self.files)
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        scheme = "http"
        if context is not None:
            scheme = "https"
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(release) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/")
                release.asked.append(name)
                if name in release.answers:
                    release.answers[name](self)
                elif name in release.files:
                    send(self, release.files[name])
                else:
                    self.send_error(404)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def send(handler: BaseHTTPRequestHandler, body: bytes, length: int | None = None) -> None:
    """A body; a length beyond it makes it one that was cut off."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)


def sums(files: dict[str, bytes]) -> bytes:
    """SHA256SUMS of files."""
    lines = (f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in files.items())
    return "".join(lines).encode()


def source(install: str = INSTALL) -> bytes:
    """An archive with nothing but this install.sh."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        member = tarfile.TarInfo("hearth-1.0/install.sh")
        member.size = len(install)
        archive.addfile(member, io.BytesIO(install.encode()))
    return written.getvalue()


@pytest.fixture
def release() -> Iterator[Release]:
    """A good release over HTTP."""
    running = Release()
    yield running
    running.close()


@pytest.fixture
def prepared(machine: Machine, release: Release) -> Machine:
    """A machine with what get.sh needs, told of the release. It is one for x86."""
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        (machine.commands / name).symlink_to(path)
    (machine.commands / "uname").unlink()
    machine.add("uname", "case $1 in -m) echo x86_64 ;; *) echo Linux ;; esac")
    machine.variables["HEARTH_RELEASE_URL"] = release.url
    return machine


def get(machine: Machine, *arguments: str, script: bytes | None = None) -> tuple[int, str]:
    """Pipes the script into sh, as its users do. Returns the status and what was complained of;
    nothing that was fetched may stay."""
    done = subprocess.run(
        ["sh", "-s", "--", *arguments],
        env=dict(machine.environment()),
        cwd=machine.home,
        input=GET.read_bytes() if script is None else script,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert not list(machine.home.glob("hearth-get.*"))
    return done.returncode, done.stderr.decode()


def installed(machine: Machine) -> str | None:
    """What install.sh was called with; None: it was not."""
    path = machine.home / "installed"
    return path.read_text() if path.exists() else None


def refused(machine: Machine, *words: str) -> None:
    """get.sh refuses, in one line with these words after what curl may say."""
    status, errors = get(machine)
    assert status == 1
    assert installed(machine) is None
    *others, said = errors.splitlines()
    assert said.startswith("get.sh: ")
    assert all(line.startswith("curl: ") for line in others), errors
    for word in words:
        assert word in said


def test_release_is_installed_with_the_wheels_of_this_machine_and_the_options(
    prepared: Machine, release: Release
) -> None:
    assert get(prepared, "--without-torch", "--prefix", "a b") == (0, "")
    options, _, files = (installed(prepared) or "").rpartition("|")
    assert options == "--without-torch|--prefix|a b"
    assert {ARCHIVE, WHEEL} <= set(files.split())
    assert release.asked == ["SHA256SUMS", ARCHIVE, WHEEL]


def test_failure_of_install_sh_is_its_status(prepared: Machine, release: Release) -> None:
    release.files[ARCHIVE] = source("exit 7")
    release.files["SHA256SUMS"] = sums({ARCHIVE: release.files[ARCHIVE]})
    assert get(prepared)[0] == 7


@pytest.mark.parametrize("name", [ARCHIVE, WHEEL])
def test_tampered_file_is_refused(prepared: Machine, release: Release, name: str) -> None:
    release.files[name] = release.files[name][:-1] + b"!"
    refused(prepared, name, hashlib.sha256(release.files[name]).hexdigest(), "not", "SHA256SUMS")


@pytest.mark.parametrize("name", ["SHA256SUMS", ARCHIVE, WHEEL])
def test_file_that_was_cut_off_is_refused(prepared: Machine, release: Release, name: str) -> None:
    body = release.files[name]
    release.answers[name] = lambda handler: send(handler, body[: len(body) // 2], len(body))
    refused(prepared, name, "could not be fetched", "nothing was installed")


@pytest.mark.parametrize("name", ["SHA256SUMS", ARCHIVE, WHEEL])
def test_missing_file_is_refused(prepared: Machine, release: Release, name: str) -> None:
    release.answers[name] = lambda handler: handler.send_error(404)
    refused(prepared, f"{release.url}/{name}", "22")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>not found</html>\n",
        b"0" * 64 + b"  ../hearth-1.0.tar.gz\n",
        b"0" * 64 + b"  /etc/passwd\n",
        b"0" * 64 + b"  hearth-$(touch installed).tar.gz\n",
        b"0" * 63 + b"  hearth-1.0.tar.gz\n",
    ],
)
def test_sums_of_another_form_are_refused(prepared: Machine, release: Release, text: bytes) -> None:
    release.files["SHA256SUMS"] = text
    refused(prepared, "SHA256SUMS is not a list of SHA-256 sums")
    assert release.asked == ["SHA256SUMS"]


def test_sums_without_or_with_two_sources_are_refused(prepared: Machine, release: Release) -> None:
    release.files["SHA256SUMS"] = sums({WHEEL: release.files[WHEEL]})
    refused(prepared, "lists no source")
    release.files["hearth-2.0.tar.gz"] = release.files[ARCHIVE]
    names = (ARCHIVE, "hearth-2.0.tar.gz")
    release.files["SHA256SUMS"] = sums({name: release.files[name] for name in names})
    refused(prepared, "hearth-2.0.tar.gz", "one source")


@pytest.mark.parametrize("secure", [True, False])
def test_redirect_to_http_is_refused(
    prepared: Machine, release: Release, tmp_path: Path, secure: bool
) -> None:
    def redirect(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", f"{release.url}/{ARCHIVE}")
        handler.end_headers()

    context = None
    if secure:
        pem = certificate(tmp_path / "tls")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem.certificate, pem.key)
        prepared.variables["CURL_CA_BUNDLE"] = str(pem.certificate)
    front = Release(context)
    try:
        prepared.variables["HEARTH_RELEASE_URL"] = front.url
        assert get(prepared) == (0, "")
        (prepared.home / "installed").unlink()
        front.answers[ARCHIVE] = redirect
        refused(prepared, ARCHIVE, "could not be fetched")
    finally:
        front.close()
    assert release.asked == []


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("", "hearth has no public one yet"),
        ("http://example.org/hearth", "must begin with https://"),
        ("http://127.0.0.1.example.org/", "must begin with https://"),
        ("http://127.0.0.1:80@example.org/", "name or a password"),
        ("file:///tmp", "must begin with https://"),
    ],
)
def test_address_that_is_not_safe_is_refused(prepared: Machine, url: str, word: str) -> None:
    prepared.variables["HEARTH_RELEASE_URL"] = url
    refused(prepared, word)


@pytest.mark.parametrize("tool", ["curl", "tar", "gzip", "mktemp", "sed", "uname"])
def test_missing_tool_is_named(prepared: Machine, release: Release, tool: str) -> None:
    (prepared.commands / tool).unlink()
    refused(prepared, f"{tool} is needed")
    assert release.asked == []


def test_any_program_that_knows_sha256_will_do(prepared: Machine, release: Release) -> None:
    (prepared.commands / "sha256sum").unlink()
    refused(prepared, "sha256sum, shasum or python3 is needed")
    prepared.add_python()
    assert get(prepared) == (0, "")
    prepared.add("shasum", f'shift 2; exec {shutil.which("sha256sum")} "$@"')
    (prepared.commands / "python3").unlink()
    assert get(prepared) == (0, "")
    release.files[WHEEL] = b"other"
    (prepared.home / "installed").unlink()
    refused(prepared, WHEEL)


def test_script_that_was_cut_off_anywhere_runs_nothing(machine: Machine) -> None:
    """Of each of its beginnings, at every line and every byte of the last one."""
    ran = machine.home / "ran"
    for tool in ("curl", "tar", "gzip", "mktemp", "sed", "uname", "sha256sum"):
        (machine.commands / tool).unlink(missing_ok=True)
        machine.add(tool, f'echo {tool} >>"{ran}"')
    machine.variables["HEARTH_RELEASE_URL"] = "https://127.0.0.1:1"
    whole = GET.read_bytes()
    get(machine, script=whole)
    assert ran.exists(), "the whole script runs them"
    ran.unlink()
    body, _, last = whole.rstrip(b"\n").rpartition(b"\n")
    lines = body.split(b"\n")
    starts = [b"\n".join(lines[:count]) for count in range(len(lines) + 1)]
    starts += [body + b"\n" + last[:count] for count in range(len(last))]
    for start in starts:
        get(machine, script=start)
        assert not ran.exists(), start[-80:]
