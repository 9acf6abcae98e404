"""Hostile model files: what llama.cpp cannot stand is refused before a worker sees it.

The mutants are those of tests/attack/mutations.py; `python -m tests.attack.model_trials` tries as
many of them as wanted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from modelfile.builtin import seed_builtin
from registry.bundle import read_bundle
from registry.errors import InvalidGguf
from registry.formats.gguf import read_header
from registry.names import Name
from registry.store import Store
from runner.models.memory_requirement import bits_per_weight, memory_requirement
from runner.settings import Settings
from tests.attack.model_trials import EMBER, SMOLLM2
from tests.attack.mutations import Gguf, mutate, read_gguf, write_gguf
from tests.conftest import RunningDaemon, StartDaemon
from tests.gguf_files import Value, f32, text, u32
from tests.integration.cli_process import hearth, of_daemon

FAST_MUTANTS, SLOW_MUTANTS = 60, 10_000
MAX_FAILED_SHARE = 0.01  # of the mutants: they pass the check and fail in llama.cpp
EPSILON = "llama.attention.layer_norm_rms_epsilon"
# What ended a worker before the check knew it, and what the refusal names.
CRASHERS: dict[str, tuple[dict[str, Value], str]] = {
    "a vocabulary of BERT's kind": (
        {"tokenizer.ggml.model": text("bert")},
        "tokenizer.ggml.token_type",
    ),
    "no vocabulary": ({"tokenizer.ggml.model": text("no_vocab")}, "tokenizer.ggml.model"),
    "none": ({"tokenizer.ggml.model": text("none")}, "tokenizer.ggml.model"),
    "experts of a dense model": ({"llama.expert_count": u32(8)}, "llama.expert_used_count"),
    "experts of a dense model, in use": (
        {"llama.expert_count": u32(8), "llama.expert_used_count": u32(2)},
        "blk.0.ffn_gate_inp.weight",
    ),
    "a negative epsilon": ({EPSILON: f32(-1.0)}, EPSILON),
    "an epsilon that is no number": ({EPSILON: f32(float("nan"))}, EPSILON),
}


@pytest.fixture(scope="module")
def ember() -> Gguf:
    return read_gguf(EMBER, weights=True)


def with_values(sound: Gguf, values: dict[str, Value]) -> bytes:
    return write_gguf(
        dataclasses.replace(sound, entries=[*(dict(sound.entries) | values).items()])
    )[0]


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon()


def create(daemon: RunningDaemon, folder: Path, content: bytes) -> subprocess.CompletedProcess[str]:
    (folder / "hostile.gguf").write_bytes(content)
    (folder / "Modelfile").write_text("FROM ./hostile.gguf\n")
    return hearth(of_daemon(daemon), "create", "hostile", cwd=folder)


def test_create_refuses_what_ended_a_worker_and_names_it(
    daemon: RunningDaemon, tmp_path: Path, ember: Gguf
) -> None:
    for name, (values, named) in CRASHERS.items():
        done = create(daemon, tmp_path, with_values(ember, values))
        assert done.returncode == 1, name
        assert named in done.stderr, (name, done.stderr)
    with daemon.client() as client:
        tags = client.get("/api/tags").json()["models"]
    assert "hostile:latest" not in [model["name"] for model in tags]
    assert create(daemon, tmp_path, write_gguf(ember)[0]).returncode == 0


def test_no_header_breaks_what_is_told_of_its_memory(tmp_path: Path) -> None:
    sound, path = read_gguf(EMBER), tmp_path / "mutant.gguf"
    with contextlib.closing(Store.open(tmp_path / "models")) as store:
        seed_builtin(store)
        bundle = read_bundle(store, store.get(Name.parse("ember")))
    told = 0
    for number in range(FAST_MUTANTS):
        mutate(sound, 2, number).write(path)
        with contextlib.suppress(InvalidGguf):
            changed = dataclasses.replace(bundle, header=read_header(path))
            need, bits = memory_requirement(changed, Settings()), bits_per_weight(changed)
            assert need is None or 0 < need.total_bytes < 2**70
            assert bits is None or 0 <= bits <= 64
            told += 1
    assert told > FAST_MUTANTS / 5


def trials(kind: str, count: int) -> dict[str, int]:
    """The outcomes of a kind's mutants, in a process that may fork: it has no threads."""
    command = [sys.executable, "-m", "tests.attack.model_trials", "--kind", kind]
    done = subprocess.run(
        [*command, "--count", str(count)], capture_output=True, text=True, check=False
    )
    line, _, faults = done.stdout.partition("\n")
    assert line.startswith(kind), done.stderr[-3000:]
    outcomes: dict[str, int] = json.loads(line.removeprefix(kind))
    assert not outcomes.get("crashed", 0), faults
    assert not outcomes.get("fault", 0), faults
    assert outcomes["loaded"] > count / 20
    assert outcomes["refused"] > count / 4
    assert outcomes.get("failed", 0) <= count * MAX_FAILED_SHARE, faults
    return outcomes


def test_no_mutant_of_ember_ends_a_worker() -> None:
    assert sum(trials("ember", FAST_MUTANTS).values()) == FAST_MUTANTS


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["ember", "smollm2", "projector", "audio", "adapter", "safetensors"]
)
def test_of_10_000_mutants_none_ends_a_worker(kind: str) -> None:
    if kind == "smollm2" and not SMOLLM2.is_file():
        pytest.skip("SmolLM2 is not at hand")
    trials(kind, SLOW_MUTANTS)


def test_a_worker_that_crashes_twice_marks_its_model_and_says_so(daemon: RunningDaemon) -> None:
    with daemon.client() as client:
        for _ in range(2):
            assert client.post("/api/generate", json={"model": "echo"}).status_code == 200
            (worker,) = psutil.Process(daemon.pid).children()
            os.kill(worker.pid, signal.SIGSEGV)
            while client.get("/api/ps").json()["models"]:  # until the daemon has noticed
                pass
        models = {model["name"]: model for model in client.get("/api/tags").json()["models"]}
    said = "crashed its worker twice (SIGSEGV while answering)"
    assert models["echo:latest"]["crashes"] == said
    assert said in hearth(of_daemon(daemon), "list").stderr
    assert said in hearth(of_daemon(daemon), "show", "echo").stdout
