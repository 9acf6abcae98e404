"""hearth create from files of this machine, with a real daemon: how they reach the store, and what
is left when somebody is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.formats.gguf import read_header
from tests.conftest import RunningDaemon, StartDaemon, daemon_process
from tests.echo_models import echo_gguf
from tests.gguf_files import (
    Tensor,
    all_llama_tensors,
    gguf_file,
    llama_file,
    llama_metadata,
    text,
    u16,
)
from tests.integration.cli_process import COMMAND, TIMEOUT_S, environment, hearth, of_daemon

LARGE_BYTES = 400 << 20  # as a hole in a file: reading it takes a part of a second


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon(names=())


@pytest.fixture
def seeded(daemon: RunningDaemon) -> set[str]:
    """The blobs of the bundled models."""
    return blobs_of(daemon)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a Modelfile for weights.gguf."""
    place = tmp_path / "build"
    place.mkdir()
    (place / "weights.gguf").write_bytes(llama_file())
    (place / "Modelfile").write_text("FROM ./weights.gguf\n")
    return place


def blob(daemon: RunningDaemon, content: bytes) -> Path:
    return daemon.home / "models" / "blobs" / Digest.of(content).file_name


def blobs_of(daemon: RunningDaemon) -> set[str]:
    return {path.name for path in (daemon.home / "models" / "blobs").iterdir()}


def temporary(daemon: RunningDaemon) -> list[str]:
    return [path.name for path in (daemon.home / "models" / "tmp").iterdir()]


def create(daemon: RunningDaemon, folder: Path, *options: str) -> None:
    ran = hearth(of_daemon(daemon), "create", "mine", *options, cwd=folder)
    assert (ran.returncode, ran.stdout) == (0, "created 'mine'\n"), ran.stderr
    assert temporary(daemon) == []


def can_clone(folder: Path) -> bool:
    ran = subprocess.run(
        ["cp", "--reflink=always", "weights.gguf", "clone"], cwd=folder, capture_output=True
    )
    (folder / "clone").unlink(missing_ok=True)
    return ran.returncode == 0


def test_a_file_of_this_user_gets_a_second_name_instead_of_a_copy(
    daemon: RunningDaemon, folder: Path
) -> None:
    source = folder / "weights.gguf"
    create(daemon, folder)
    stored = blob(daemon, llama_file())
    assert stored.read_bytes() == llama_file()
    assert stored.samefile(source) != can_clone(folder)


@pytest.mark.parametrize("reason", ["asked for", "writable by the group"])
def test_a_file_is_copied_when_a_link_would_not_be_safe(
    daemon: RunningDaemon, folder: Path, reason: str
) -> None:
    source = folder / "weights.gguf"
    if reason == "writable by the group":
        source.chmod(0o664)
    create(daemon, folder, *(("--copy",) if reason == "asked for" else ()))
    source.write_bytes(b"changed in place")
    assert blob(daemon, llama_file()).read_bytes() == llama_file()


def test_a_command_with_another_store_sends_the_file(
    daemon: RunningDaemon, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "models" / "tmp").mkdir(parents=True)
    env = environment(tmp_path / "elsewhere", daemon.url)
    ran = hearth(env, "create", "mine", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "sending weights.gguf" in ran.stderr
    assert blob(daemon, llama_file()).stat().st_nlink == 1
    assert not list((tmp_path / "elsewhere" / "models" / "tmp").iterdir())


def test_a_blob_of_the_store_can_be_named_in_from(daemon: RunningDaemon, folder: Path) -> None:
    create(daemon, folder)
    (folder / "Modelfile").write_text(f"FROM {blob(daemon, llama_file())}\nSYSTEM x\n")
    create(daemon, folder)
    assert "system" in hearth(of_daemon(daemon), "show", "mine").stdout.lower()


def test_the_parts_of_a_split_model_are_merged(
    daemon: RunningDaemon, folder: Path, seeded: set[str]
) -> None:
    tensors, names = all_llama_tensors(), []
    for number, part in enumerate((tensors[:1], tensors[1:])):
        keys = dict(llama_metadata()) if number == 0 else {}
        keys |= {"split.no": u16(number), "split.count": u16(2)}
        names.append(f"m-0000{number + 1}-of-00002.gguf")
        (folder / names[-1]).write_bytes(gguf_file(keys, part))
    (folder / "Modelfile").write_text(f"FROM ./{names[1]}\n")
    create(daemon, folder)
    (stored,) = [
        path
        for path in (daemon.home / "models" / "blobs").iterdir()
        if path.name not in seeded and path.read_bytes().startswith(b"GGUF")
    ]
    header = read_header(stored)
    assert len(header.tensors) == len(tensors)
    assert "split.count" not in header.metadata
    (folder / names[0]).unlink()
    ran = hearth(of_daemon(daemon), "create", "other", cwd=folder)
    assert ran.returncode == 1
    assert f"{names[0]} is missing" in ran.stderr


def test_a_folder_with_one_model_can_be_named(daemon: RunningDaemon, folder: Path) -> None:
    (folder / "Modelfile").write_text("FROM .\n")
    create(daemon, folder)
    (folder / "Modelfile").unlink()
    create(daemon, folder)


ADAPTER = {
    "general.type": text("adapter"),
    "general.architecture": text("llama"),
    "adapter.type": text("lora"),
}


@pytest.mark.parametrize(("width", "fits"), [(64, True), (32, False)])
def test_an_adapter_is_a_layer_unless_it_is_of_another_model(
    daemon: RunningDaemon, folder: Path, seeded: set[str], width: int, fits: bool
) -> None:
    pair = [
        Tensor("blk.0.attn_q.weight.lora_a", (width, 8)),
        Tensor("blk.0.attn_q.weight.lora_b", (8, 64)),
    ]
    content = gguf_file(ADAPTER, pair)
    (folder / "lora.gguf").write_bytes(content)
    (folder / "Modelfile").write_text("FROM ./weights.gguf\nADAPTER ./lora.gguf\n")
    if fits:
        create(daemon, folder)
        assert blob(daemon, content).exists()
        return
    ran = hearth(of_daemon(daemon), "create", "mine", cwd=folder)
    assert ran.returncode == 1
    assert "made for another model" in ran.stderr
    assert (blobs_of(daemon), temporary(daemon)) == (seeded, [])


def test_a_file_that_is_no_model_leaves_nothing(
    daemon: RunningDaemon, folder: Path, seeded: set[str]
) -> None:
    (folder / "weights.gguf").write_bytes(llama_file()[:5000])
    ran = hearth(of_daemon(daemon), "create", "mine", cwd=folder)
    assert ran.returncode == 1
    assert "truncated" in ran.stderr
    assert (blobs_of(daemon), temporary(daemon)) == (seeded, [])
    assert (folder / "weights.gguf").exists()


def test_a_model_that_is_not_installed_is_not_pulled_when_offline(
    daemon: RunningDaemon, folder: Path
) -> None:
    (folder / "Modelfile").write_text("FROM nowhere\n")
    ran = hearth(of_daemon(daemon), "create", "mine", cwd=folder)
    assert ran.returncode == 3
    assert "nowhere" in ran.stderr


def test_clients_of_the_port_cannot_name_files_of_the_machine(daemon: RunningDaemon) -> None:
    secret = daemon.home / "models" / "tmp" / "incoming-secret"
    secret.write_bytes(echo_gguf())
    with daemon.client() as http:
        for name in ("/etc/passwd", "../../etc/passwd", secret.name, f"incoming-{'0' * 32}"):
            answer = http.post("/api/blobs", json={"file": name})
            assert answer.status_code == 400, name
            assert "is not in the store" in answer.json()["error"]
    assert secret.exists()


@pytest.fixture
def creating(
    daemon: RunningDaemon, seeded: set[str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose large file the daemon is reading just now."""
    os.truncate(folder / "weights.gguf", LARGE_BYTES)
    process = subprocess.Popen(
        [*COMMAND, "create", "mine", "--json"],
        env=of_daemon(daemon),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["status"].startswith("verifying"):
            break
    yield process
    process.kill()
    process.communicate(timeout=TIMEOUT_S)


def nothing_is_left(daemon: RunningDaemon, folder: Path, seeded: set[str]) -> None:
    assert (blobs_of(daemon), temporary(daemon)) == (seeded, [])
    assert (folder / "weights.gguf").stat().st_size == LARGE_BYTES


def test_ctrl_c_ends_the_work_and_says_that_nothing_was_left(
    daemon: RunningDaemon, folder: Path, seeded: set[str], creating: subprocess.Popen[bytes]
) -> None:
    creating.send_signal(signal.SIGINT)
    _, shown = creating.communicate(timeout=TIMEOUT_S)
    assert creating.returncode == 130
    assert b"the incomplete model was removed" in shown
    daemon.stop()
    nothing_is_left(daemon, folder, seeded)


def test_a_command_that_is_killed_leaves_nothing(
    daemon: RunningDaemon, folder: Path, seeded: set[str], creating: subprocess.Popen[bytes]
) -> None:
    creating.kill()
    creating.wait(TIMEOUT_S)
    daemon.stop()
    nothing_is_left(daemon, folder, seeded)


def test_a_daemon_that_is_killed_leaves_nothing_after_its_next_start(
    daemon: RunningDaemon, folder: Path, seeded: set[str], creating: subprocess.Popen[bytes]
) -> None:
    daemon.process.kill()
    daemon.process.wait(TIMEOUT_S)
    _, shown = creating.communicate(timeout=TIMEOUT_S)
    assert creating.returncode == 1
    assert shown.startswith(b"Error: ")
    again = RunningDaemon(daemon_process(daemon.home, {}), daemon.home)
    try:
        again.await_start()
        nothing_is_left(again, folder, seeded)
    finally:
        again.stop()
