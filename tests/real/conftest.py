"""A daemon that has the published models, and the environment of transformers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.backends.host_sampling.openmp import SPIN_COUNT
from tests.conformance.sources import REPOSITORY
from tests.conftest import RunningDaemon, running_daemon
from tests.real.models import MODELS, path_of

ORACLE = REPOSITORY / ".venv-oracle" / "bin" / "python"
OPTIONS = {"num_ctx": 1024, "num_parallel": 1}
_TIMEOUT_S = 1800.0

Model = Callable[..., str]
AskOracle = Callable[..., Any]


def require(name: str) -> Path:
    """Where the published model is; the test is skipped where it is not."""
    path = path_of(name)
    if not path.exists():
        pytest.skip(f"{MODELS[name].name} is missing: make real-models MODELS={name}")
    return path


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon without models."""
    with running_daemon(tmp_path_factory.mktemp("real"), ()) as found:
        yield found


@pytest.fixture(scope="session")
def http(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    """A client of it."""
    with daemon.client(_TIMEOUT_S) as client:
        yield client


@pytest.fixture(scope="session")
def installed(http: httpx.Client) -> Model:
    """Brings a published GGUF file into the daemon: installed(name, backend="llamacpp") gives its
    name there."""
    made: set[str] = set()

    def create(name: str, **body: Any) -> None:
        if name not in made:
            reply = http.post("/api/create", json={"model": name, "stream": False, **body})
            assert reply.status_code == 200, reply.text
            made.add(name)

    def install(name: str, backend: str = "llamacpp") -> str:
        path = require(name)
        if backend == "torch" and find_spec("torch") is None:
            pytest.skip("torch is not installed")
        if name not in made:
            create(name, files={path.name: upload(http, path)}, parameters=OPTIONS)
        if backend == "llamacpp":
            return name
        create(f"{name}-{backend}", **{"from": name, "parameters": {**OPTIONS, "backend": backend}})
        return f"{name}-{backend}"

    return install


def upload(client: httpx.Client, path: Path) -> str:
    """Put the file into the daemon's store; its digest."""
    with path.open("rb") as content:
        digest = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
        content.seek(0)
        client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
    return digest


@pytest.fixture(scope="session")
def ask_oracle() -> AskOracle:
    """Asks tests/real/oracle.py, in its own environment: ask_oracle(job, **arguments)."""
    if not ORACLE.exists():
        pytest.skip("transformers has no environment: make real")

    def ask(job: str, **arguments: Any) -> Any:
        ran = subprocess.run(
            [str(ORACLE), "-P", str(Path(__file__).with_name("oracle.py"))],
            input=json.dumps({"job": job, "arguments": arguments}),
            stdout=subprocess.PIPE,
            text=True,
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME")},
                "HF_HUB_OFFLINE": "1",
                "GOMP_SPINCOUNT": SPIN_COUNT,
            },
            timeout=_TIMEOUT_S,
            check=True,
        )
        return json.loads(ran.stdout)

    return ask
