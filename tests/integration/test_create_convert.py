"""hearth create from safetensors, with a real daemon and real jobs."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from registry.formats.gguf import GgufHeader, read_header
from tests.checkpoint_files import CONFIG, write_checkpoint
from tests.conformance.convert.weights import weight, write_safetensors
from tests.conftest import RunningDaemon, StartDaemon, daemon_process
from tests.integration.cli_process import COMMAND, TIMEOUT_S, hearth, of_daemon

CONVERTING = "jobs convert"


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon(names=())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small checkpoint in two shards, and a Modelfile for it."""
    place = tmp_path / "build"
    model = place / "tiny"
    model.mkdir(parents=True)
    write_checkpoint(model)
    (place / "Modelfile").write_text("FROM ./tiny\nPARAMETER temperature 0\n")
    return place


def blobs_of(daemon: RunningDaemon) -> set[Path]:
    return set((daemon.home / "models" / "blobs").iterdir())


def temporary(daemon: RunningDaemon) -> list[str]:
    return [path.name for path in (daemon.home / "models" / "tmp").iterdir()]


def manifest_of(daemon: RunningDaemon, name: str) -> Path:
    library = daemon.home / "models" / "manifests" / "registry.ollama.ai" / "library"
    return library / name / "latest"


def header_of(daemon: RunningDaemon, name: str) -> GgufHeader:
    layers = json.loads(manifest_of(daemon, name).read_text())["layers"]
    digest = next(item["digest"] for item in layers if item["mediaType"].endswith(".model"))
    return read_header(daemon.home / "models" / "blobs" / digest.replace(":", "-"))


def test_a_checkpoint_becomes_a_model_that_runs(daemon: RunningDaemon, folder: Path) -> None:
    before = blobs_of(daemon)
    ran = hearth(of_daemon(daemon), "create", "mine", cwd=folder)
    assert (ran.returncode, ran.stdout) == (0, "created 'mine'\n"), ran.stderr
    header = header_of(daemon, "mine")
    assert (header.architecture, header.quantization) == ("llama", "BF16")
    assert len(blobs_of(daemon) - before) == 3  # weights, parameters, config; no file of the folder
    assert temporary(daemon) == []
    answer = hearth(of_daemon(daemon), "run", "mine", "hi", "-p", "num_predict=4")
    assert answer.returncode == 0, answer.stderr


def test_a_checkpoint_gives_the_same_text_on_torch(daemon: RunningDaemon, folder: Path) -> None:
    pytest.importorskip("torch")
    assert hearth(of_daemon(daemon), "create", "mine", "-q", "F32", cwd=folder).returncode == 0
    (folder / "Modelfile").write_text("FROM mine\nPARAMETER backend torch\n")
    assert hearth(of_daemon(daemon), "create", "glow", cwd=folder).returncode == 0
    body = {"prompt": "warm hearth", "raw": True, "stream": False}
    body["options"] = {"temperature": 0, "num_predict": 32}
    with daemon.client(TIMEOUT_S) as client:
        said = [
            client.post("/api/generate", json={**body, "model": model}).json()
            for model in ("mine", "glow")
        ]
    assert said[0]["response"] == said[1]["response"] != ""
    assert said[0]["eval_count"] == said[1]["eval_count"] == 32


@pytest.mark.parametrize("kind", ["F16", "F32"])
def test_the_type_of_a_conversion_can_be_chosen(
    daemon: RunningDaemon, folder: Path, kind: str
) -> None:
    assert hearth(of_daemon(daemon), "create", "mine", "-q", kind, cwd=folder).returncode == 0
    assert header_of(daemon, "mine").quantization == kind


def write_adapter(folder: Path, width: int = 64) -> None:
    """A PEFT adapter for the query of the first layer."""
    lora = folder / "lora"
    lora.mkdir()
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (lora / "adapter_config.json").write_text(json.dumps(config))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    tensors = {
        f"{name}A.weight": weight("", "a", (4, width)),
        f"{name}B.weight": weight("", "b", (64, 4)),
    }
    write_safetensors(lora / "adapter_model.safetensors", tensors, "F32")
    (folder / "Modelfile").write_text("FROM ./tiny\nADAPTER ./lora\n")


def test_an_adapter_of_peft_becomes_a_layer(daemon: RunningDaemon, folder: Path) -> None:
    write_adapter(folder)
    ran = hearth(of_daemon(daemon), "create", "mine", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    ran = hearth(of_daemon(daemon), "show", "mine", "--modelfile")
    (folder / "Modelfile").write_text(ran.stdout)
    assert hearth(of_daemon(daemon), "create", "again", cwd=folder).returncode == 0
    layers = json.loads(manifest_of(daemon, "again").read_text())["layers"]
    (digest,) = [item["digest"] for item in layers if item["mediaType"].endswith(".adapter")]
    header = read_header(daemon.home / "models" / "blobs" / digest.replace(":", "-"))
    assert header.metadata["general.type"] == "adapter"
    assert {tensor.name for tensor in header.tensors} == {
        "blk.0.attn_q.weight.lora_a",
        "blk.0.attn_q.weight.lora_b",
    }
    answer = hearth(of_daemon(daemon), "run", "again", "hi", "-p", "num_predict=2")
    assert answer.returncode == 0, answer.stderr


def remove_shard(folder: Path) -> None:
    (folder / "tiny" / "model-00002-of-00002.safetensors").unlink()


def change_architecture(folder: Path) -> None:
    config = {**CONFIG, "model_type": "unheard_of"}
    (folder / "tiny" / "config.json").write_text(json.dumps(config))


def contradict_the_config(folder: Path) -> None:
    config = {**CONFIG, "intermediate_size": 128}
    (folder / "tiny" / "config.json").write_text(json.dumps(config))


def repeat_a_tensor(folder: Path) -> None:
    shards = [folder / "tiny" / f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    shards[1].write_bytes(shards[0].read_bytes())


def offer_a_pickle(folder: Path) -> None:
    for path in (folder / "tiny").glob("*.safetensors*"):
        path.unlink()
    (folder / "tiny" / "pytorch_model.bin").write_bytes(b"PK\x03\x04")


def adapt_another_model(folder: Path) -> None:
    write_adapter(folder, width=32)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (remove_shard, "model-00002-of-00002.safetensors is missing"),
        (change_architecture, "unheard_of"),
        (contradict_the_config, "config.json requires"),
        (repeat_a_tensor, "tensor"),
        (offer_a_pickle, "is a pickle"),
        (adapt_another_model, "blk.0.attn_q"),
    ],
)
def test_a_spoilt_checkpoint_is_told_and_leaves_nothing(
    daemon: RunningDaemon, folder: Path, spoil: Callable[[Path], None], words: str
) -> None:
    before = blobs_of(daemon)
    spoil(folder)
    ran = hearth(of_daemon(daemon), "create", "mine", cwd=folder)
    assert ran.returncode == 1
    assert words in ran.stderr
    assert ran.stderr.count("Error: ") == 1
    assert (blobs_of(daemon), temporary(daemon)) == (before, [])


@pytest.fixture
def before(daemon: RunningDaemon) -> set[Path]:
    """The blobs of the bundled models."""
    return blobs_of(daemon)


@pytest.fixture
def converting(
    daemon: RunningDaemon, before: set[Path], folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """A command whose conversion begins just now, and the process that converts."""
    command = subprocess.Popen(
        [*COMMAND, "create", "mine"],
        env=of_daemon(daemon),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    job = started_job(daemon)
    assert [name for name in temporary(daemon) if name.startswith("work-")]
    yield command, job
    command.kill()
    command.communicate(timeout=TIMEOUT_S)


def started_job(daemon: RunningDaemon) -> psutil.Process:
    pause = threading.Event()
    for _ in range(10_000):
        for process in psutil.Process(daemon.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # another one that has just ended
                if process.name() == CONVERTING:
                    return process
        pause.wait(0.002)
    raise AssertionError("no conversion has begun")


def until_told_to_end(job: psutil.Process) -> None:
    """Wait until a suspended process has a SIGTERM before it, or is gone."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            status = Path(f"/proc/{job.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return
        if int(status.split("ShdPnd:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1:
            return
    raise AssertionError("the job is not told to end")


def test_ctrl_c_ends_the_conversion_and_leaves_nothing(
    daemon: RunningDaemon,
    before: set[Path],
    converting: tuple[subprocess.Popen[bytes], psutil.Process],
) -> None:
    command, job = converting
    job.suspend()  # so that it cannot be done before
    command.send_signal(signal.SIGINT)
    until_told_to_end(job)
    with contextlib.suppress(psutil.NoSuchProcess):
        job.resume()  # else it is killed after 5 s
    _, shown = command.communicate(timeout=TIMEOUT_S)
    assert (command.returncode, b"the incomplete model was removed" in shown) == (130, True)
    daemon.stop()
    assert not job.is_running()
    assert (blobs_of(daemon), temporary(daemon)) == (before, [])


def test_a_killed_daemon_takes_the_conversion_along_and_leaves_nothing(
    daemon: RunningDaemon,
    before: set[Path],
    converting: tuple[subprocess.Popen[bytes], psutil.Process],
) -> None:
    command, job = converting
    daemon.process.kill()
    daemon.process.wait(TIMEOUT_S)
    command.communicate(timeout=TIMEOUT_S)
    assert command.returncode == 1
    with contextlib.suppress(psutil.NoSuchProcess):
        job.wait(TIMEOUT_S)
    again = RunningDaemon(daemon_process(daemon.home, {}), daemon.home)
    try:
        again.await_start()
        assert (blobs_of(again), temporary(again)) == (before, [])
    finally:
        again.stop()


def test_a_checkpoint_is_quantized_on_its_way(
    daemon: RunningDaemon, before: set[Path], folder: Path
) -> None:
    ran = hearth(of_daemon(daemon), "create", "mine", "-q", "q8_0", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "quantizing" in ran.stderr
    assert header_of(daemon, "mine").quantization == "Q8_0"
    assert len(blobs_of(daemon) - before) == 3  # the unquantized weights are gone
    assert temporary(daemon) == []
    answer = hearth(of_daemon(daemon), "run", "mine", "hi", "-p", "num_predict=2")
    assert answer.returncode == 0, answer.stderr


def test_an_installed_model_is_quantized_once_unless_more_is_allowed(
    daemon: RunningDaemon, folder: Path
) -> None:
    env = of_daemon(daemon)
    assert hearth(env, "create", "mine", cwd=folder).returncode == 0
    (folder / "Modelfile").write_text("FROM mine\n")
    assert hearth(env, "create", "small", "-q", "Q8_0", cwd=folder).returncode == 0
    (folder / "Modelfile").write_text("FROM small\n")
    before = blobs_of(daemon)
    ran = hearth(env, "create", "smaller", "-q", "Q4_0", cwd=folder)
    assert (ran.returncode, "Q8_0" in ran.stderr) == (1, True), ran.stderr
    assert (blobs_of(daemon), temporary(daemon)) == (before, [])
    ran = hearth(env, "create", "smaller", "-q", "Q4_0", "--allow-requantize", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert header_of(daemon, "smaller").quantization == "Q4_0"


def test_single_tensors_may_have_another_type(daemon: RunningDaemon, folder: Path) -> None:
    options = ("-q", "Q4_0", "--tensor-type", "attn_v=F16")
    ran = hearth(of_daemon(daemon), "create", "mine", *options, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    kinds = {tensor.name: tensor.type for tensor in header_of(daemon, "mine").tensors}
    assert (kinds["blk.0.attn_v.weight"], kinds["blk.0.attn_q.weight"]) == ("F16", "Q4_0")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quantize": "Q4_M"}, "unknown quantization type 'Q4_M'; did you mean"),
        ({"quantize": "IQ2_XS"}, "IQ2_XS needs an importance matrix"),
        ({"quantize": "Q4_0", "tensor_types": {"x": "Q9"}}, "unknown tensor type 'Q9'"),
        ({"imatrix": f"sha256:{'0' * 64}"}, "imatrix requires quantize"),
        ({"draft_quantize": "Q4_0"}, "draft_quantize requires draft or draft_files"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_before_the_work(
    shared_daemon: RunningDaemon, fields: dict[str, Any], words: str
) -> None:
    with shared_daemon.client() as http:
        answer = http.post("/api/create", json={"model": "new", "from": "echo", **fields})
    assert answer.status_code == 400
    assert words in answer.json()["error"]


def test_the_importance_matrix_is_made_from_a_text(
    daemon: RunningDaemon, before: set[Path], folder: Path
) -> None:
    (folder / "words.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    options = ("-q", "Q4_0", "--calibrate", str(folder / "words.txt"))
    ran = hearth(of_daemon(daemon), "create", "mine", *options, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert header_of(daemon, "mine").quantization == "Q4_0"
    assert len(blobs_of(daemon) - before) == 3  # the text is gone
    assert temporary(daemon) == []
