"""hearth doctor with real daemons, and with what goes wrong around them."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunningDaemon, running_daemon
from tests.integration.cli_process import (
    COMMAND,
    TIMEOUT_S,
    end,
    environment,
    free_address,
    hearth,
    of_daemon,
)

CANARY = "CANARY-0123456789"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One whose home this module may damage."""
    with running_daemon(tmp_path_factory.mktemp("doctor")) as running:
        yield running


def examined(env: dict[str, str], *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the worst finding of each area."""
    ran = hearth(env, "doctor", "--json", *options)
    assert "Traceback" not in ran.stderr
    report = json.loads(ran.stdout)
    levels = ("ok", "warning", "problem")
    ordered = sorted(report["findings"], key=lambda found: levels.index(found["level"]))
    assert all((found["mend"] is None) == (found["level"] == "ok") for found in ordered)
    return ran.returncode, {found["area"]: found for found in ordered}


def test_a_well_installation_has_no_problem_and_every_area_has_a_line(
    daemon: RunningDaemon,
) -> None:
    ran = hearth(of_daemon(daemon), "doctor")
    assert ran.returncode == 0, ran.stdout
    areas = {line[9:21].strip() for line in ran.stdout.splitlines() if "->" not in line}
    assert areas >= {"processor", "llama.cpp", "kernels", "torch", "gpu", "memory", "disk", "store",
                     "prompts", "folders", "files", "locks", "daemon", "exposure", "service",
                     "clock"}  # fmt: skip
    assert f"at {daemon.url}, up" in ran.stdout
    assert f"process {daemon.pid} holds the store" in ran.stdout


@pytest.mark.slow
def test_a_daemon_that_hangs_is_named_with_what_wakes_it(daemon: RunningDaemon) -> None:
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        code, found = examined(of_daemon(daemon))
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert code == 1
    assert "does not respond" in found["port"]["text"]
    assert f"process {daemon.pid}" in found["port"]["text"]
    assert found["port"]["mend"] == f"kill -CONT {daemon.pid}"


def test_a_damaged_manifest_and_a_torn_file_are_problems(daemon: RunningDaemon) -> None:
    manifest = daemon.home / "models/manifests/registry.ollama.ai/library/echo/latest"
    content = manifest.read_bytes()
    manifest.write_bytes(content[:40])
    (daemon.home / "shortnames.toml").write_text("[torn")
    try:
        code, found = examined(of_daemon(daemon))
    finally:
        manifest.write_bytes(content)
        (daemon.home / "shortnames.toml").unlink()
    assert code == 1
    assert (found["store"]["level"], found["store"]["mend"]) == ("problem", "hearth fsck --repair")
    assert "echo" in found["store"]["text"]
    assert "shortnames.toml is damaged" in found["files"]["text"]


def test_another_program_at_the_port_is_named(tmp_path: Path) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        env = environment(tmp_path, f"127.0.0.1:{server.server_port}")
        code, found = examined(env)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert code == 1
    assert f"process {os.getpid()}" in found["port"]["text"]
    assert f"kill -TERM {os.getpid()}" in found["port"]["mend"]
    assert found["port"]["mend"].startswith(
        f"set HEARTH_HOST to another address, such as 127.0.0.1:{server.server_port + 1};"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_a_daemon_open_to_other_machines_is_a_problem(tmp_path: Path) -> None:
    script = """
import fcntl, socket, struct, subprocess, sys
with socket.socket() as probe:  # the loopback of a network of its own, up
    fcntl.ioctl(probe, 0x8914, struct.pack("16sh", b"lo", 1))
command = sys.argv[1:]
subprocess.run([*command, "list"], check=True, stdout=subprocess.DEVNULL)
done = subprocess.run([*command, "doctor", "--json"], env={"PATH": "", "HEARTH_HOME": %r})
subprocess.run([*command, "shutdown"], check=True, stdout=subprocess.DEVNULL)
sys.exit(done.returncode)
"""
    own = ("unshare", "--net", "--map-root-user")
    if subprocess.run([*own, "true"], capture_output=True).returncode:
        pytest.skip("this user may make no network of its own")
    env = environment(tmp_path, "0.0.0.0", HEARTH_INSECURE_PUBLIC="1") | {
        "HEARTH_NO_AUTOSTART": "0"
    }
    ran = subprocess.run(
        [*own, sys.executable, "-c", script % str(tmp_path), *COMMAND],
        env=env, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    exposed = [f for f in json.loads(ran.stdout)["findings"] if f["area"] == "exposure"]
    assert [found["level"] for found in exposed] == ["problem"]
    assert "0.0.0.0 is open to other machines" in exposed[0]["text"]
    assert "hearth key add NAME" in exposed[0]["mend"]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 2 MiB at folder."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_a_problem(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home") as home:
        with suppress(OSError), (home / "filler").open("wb", buffering=0) as file:
            while file.write(b"\0" * 65536):
                pass
        code, found = examined(environment(home, free_address()))
    assert code == 1
    assert (found["disk"]["level"], "full" in found["disk"]["text"]) == ("problem", True)
    assert "hearth gc" in found["disk"]["mend"]


@pytest.mark.slow
def test_proxies_and_registries_are_tried_when_it_is_asked_for(tmp_path: Path) -> None:
    address = free_address()
    proxy = f"http://me:{CANARY}@{address}"
    env = environment(tmp_path, free_address(), HTTPS_PROXY=proxy, HEARTH_OFFLINE="0",
                      HF_ENDPOINT=f"http://{address}")  # fmt: skip
    assert "network" not in examined(env)[1]
    code, found = examined(env, "--network")
    assert code == 1
    assert CANARY not in json.dumps(found)
    assert found["proxy"]["text"] == f"https: http://{address}"
    assert f"http://{address}" in found["network"]["text"]
    _, found = examined({**env, "HEARTH_OFFLINE": "1"}, "--network")
    assert found["network"]["text"] == "not tried: HEARTH_OFFLINE is set"


def test_the_archive_for_a_report_holds_no_prompt_and_no_key(tmp_path: Path) -> None:
    home, user = tmp_path / "home", tmp_path / "user"
    for folder in (home / "state", home / "prompts", home / "cache/prefixes", user / ".docker",
                   user / ".cache/huggingface"):  # fmt: skip
        folder.mkdir(parents=True, mode=0o700)
    planted = {
        home / "auth.json": f'{{"auths": {{"h": {{"auth": "{CANARY}"}}}}}}',
        home / "mcp.json": json.dumps(
            {"mcpServers": {"a": {"url": "http://x", "headers": {"X": CANARY}}}}
        ),
        home / "state/daemon.log": f"said {CANARY}\n2026-11-23 10:00:00,1 DEBUG hearth: {CANARY}\n"
        f"2026-11-23 10:00:00,1 INFO hearth: Bearer {CANARY} and {CANARY}\nValueError: {CANARY}\n",
        home / "state/history": CANARY,
        home / "state/slots.key": CANARY,
        home / "prompts/one.md": CANARY,
        home / "cache/prefixes/part": CANARY,
        home / "tls.pem": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n",
        user / ".docker/config.json": f'{{"auths": {{"h": {{"auth": "{CANARY}"}}}}}}',
        user / ".cache/huggingface/token": CANARY,
    }  # fmt: skip
    for path, text in planted.items():
        path.write_text(text)
        path.chmod(0o600)
    env = environment(
        home, free_address(), HOME=str(user), HF_TOKEN=CANARY, HTTPS_PROXY=f"http://me:{CANARY}@p",
        HEARTH_API_KEY=CANARY, HEARTH_TLS_CERT=str(home / "tls.pem"), HEARTH_NO_AUTOSTART="0",
        OPENAI_API_KEY=CANARY,
    )  # fmt: skip
    plain = {**env, "HEARTH_TLS_CERT": "", "HEARTH_API_KEY": ""}
    (tmp_path / "Modelfile").write_text(f"FROM ember\nSYSTEM {CANARY}\n")
    made = hearth(plain, "create", "mine", "-f", str(tmp_path / "Modelfile"))
    assert made.returncode == 0, made.stderr
    key = hearth(plain, "key", "add", "laptop").stdout.split()[-1]
    end(json.loads((home / "state/daemon.json").read_text())["pid"])
    (home / "keys.json").write_text((home / "keys.json").read_text() + key)  # torn
    archive = tmp_path / "report.tar.gz"
    ran = hearth(env, "doctor", "--bundle", str(archive))
    assert ran.returncode == 1, "the certificate is none"
    assert "check it before you send it" in ran.stderr
    assert archive.stat().st_mode & 0o077 == 0
    with tarfile.open(archive) as opened:
        names = opened.getnames()
        texts = [file.read().decode() for m in opened if (file := opened.extractfile(m))]
    assert names == ["hearth/doctor.json", "hearth/daemon.log"]
    for text in (*texts, ran.stdout):
        assert CANARY not in text
        assert key not in text
    told = json.loads(texts[0])
    assert "registry.ollama.ai/library/mine/latest" in told["models"]
    assert told["settings"]["HEARTH_HOME"].endswith("(HEARTH_HOME)")
    assert told["versions"]["hearth"]
    assert "listens on" in texts[1]
    again = hearth(env, "doctor", "--bundle", str(archive))
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
