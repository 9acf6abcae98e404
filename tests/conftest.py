"""Real daemons for the tests: own process, own home, a free port, ended by their process id."""

from __future__ import annotations

import functools
import gc
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from registry.store import Store
from tests.daemon_processes import DaemonProcess
from tests.echo_models import TOOL_TEMPLATE, install_echo
from tests.properties import SCALE

# They come first, so that no core waits for one of them at the end: 6 to 20 s of processor time.
LONG_FILES = (
    "tests/kernels/test_compile.py",
    "tests/attack/test_budgets.py",
    "tests/attack/test_growth.py",
    "tests/attack/test_bodies.py",
    "tests/unit/runner/backends/llamacpp/test_devices.py",
    "tests/integration/test_create_convert.py",
    "tests/unit/runner/backends/torch/parallel/test_ranks.py",
    "tests/integration/test_structured_output.py",
    "tests/integration/test_torch_ranks.py",
    "tests/integration/test_torch_quantized.py",
    "tests/integration/test_adapter_models.py",
    "tests/integration/test_pull.py",
    "tests/integration/test_mcp.py",
    "tests/integration/test_mcp_responses.py",
    "tests/integration/test_cli_chat.py",
    "tests/unit/runner/backends/llamacpp/test_kernels.py",
    "tests/unit/runner/backends/llamacpp/vision/test_image_batch.py",
    "tests/attack/test_hostile_hubs.py",
    "tests/attack/test_model_files.py",
    "tests/integration/test_pull_made.py",
    "tests/integration/test_keys.py",
    "tests/kernels/test_sampling.py",
    "tests/unit/runner/backends/host_sampling/test_text_cuts.py",
    "tests/unit/modelfile/convert/vocabulary/test_shared_vocabularies.py",
    "tests/unit/runner/jobs/test_quantize.py",
    "tests/integration/test_fuzz.py",
    "tests/integration/test_residence.py",
)

os.environ["XDG_CONFIG_HOME"] = os.devnull  # the developer's own config.toml is not for tests

LISTENING = "listens on "
# The same examples everywhere, however slow the machine is: a failure is about the code.
settings.register_profile(
    "hearth",
    max_examples=40 * SCALE,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("hearth")
# Hypothesis would take constants from the source of all modules that happen to be imported: other
# examples for each choice of tests, and seconds of processor time in each process.
providers._get_local_constants = lambda: providers._local_constants

gc.disable()  # until all is collected: a tenth of the processor time of the tests otherwise

# Shells start what is in the background with Ctrl-C ignored, which every command under test would
# inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _share_trust(library: Any) -> None:
    """Let the clients of an HTTP library share the usual TLS context: each would read all
    certificates, which takes 0.03 s of processor time."""
    create = library.create_ssl_context

    @functools.cache
    def usual(*_: str | None) -> ssl.SSLContext:
        made: ssl.SSLContext = create()
        return made

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is not True or cert is not None:
            return create(verify, cert, trust_env)
        names = ("SSL_CERT_FILE", "SSL_CERT_DIR") if trust_env else ()
        return usual(*map(os.environ.get, names))

    library._transports.default.create_ssl_context = context


_share_trust(httpx)
_share_trust(httpx2)  # that of the SDKs

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the files that take long come first, each with its tests together as they were."""
    ranks = {name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


def pytest_collection_finish() -> None:
    """Let the garbage collector work again, but not on what lasts as long as the tests."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Close what llama_cpp opens when it is imported and never closes."""
    if module := sys.modules.get("llama_cpp._utils"):
        module.outnull_file.close()
        module.errnull_file.close()


@dataclass(slots=True)
class RunningDaemon:
    """A daemon under test. lines: what it has written to stderr so far."""

    process: DaemonProcess
    home: Path
    url: str = ""
    lines: list[str] = field(default_factory=list)
    _reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.rpartition(":")[2])

    def client(self, timeout_s: float = 120.0) -> httpx.Client:
        """A client of it; close it."""
        return httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=False)

    def stop(self) -> int:
        """SIGTERM, then wait. The exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit code, once it has ended."""
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        if self._reader is not None:
            self._reader.join(STOP_TIMEOUT_S)
        self.process.stderr.close()
        return code

    def await_start(self) -> None:
        """Wait for the line that says where it listens. Raises AssertionError if it ends."""
        for line in self.process.stderr:
            self.lines.append(line)
            if LISTENING in line:
                self.url = line.split(LISTENING)[1].split(",")[0].strip()
                break
        assert self.url, f"the daemon ended with {self.process.wait()}: {''.join(self.lines)}"
        self._reader = threading.Thread(target=self._read_rest, daemon=True)
        self._reader.start()

    def _read_rest(self) -> None:
        self.lines.extend(self.process.stderr)


StartDaemon = Callable[..., RunningDaemon]


def daemon_process(
    home: Path, env: Mapping[str, str], max_files: int | None = None, *, preloaded: str = ""
) -> DaemonProcess:
    """A daemon process with an environment of its own. max_files: its hard limit of open files.
    preloaded: PYTORCH or MCP, if its children will need it."""
    clean = {key: os.environ[key] for key in ("PATH", "LANG", "CUDA_VISIBLE_DEVICES")
             if key in os.environ}  # fmt: skip
    clean |= {"HEARTH_HOME": str(home), "HEARTH_HOST": "127.0.0.1:0", "HEARTH_OFFLINE": "1", **env}
    return DaemonProcess(clean, max_files, preloaded=preloaded)


def install_models(home: Path, names: Sequence[str]) -> None:
    """Echo models in the store of home. One whose name begins with "tools" has a template that
    knows tools."""
    store = Store.open(home / "models")
    try:
        for name in names:
            template = TOOL_TEMPLATE if name.startswith("tools") else None
            install_echo(store, name, template=template)
    finally:
        store.close()


@contextmanager
def running_daemon(
    home: Path,
    names: Sequence[str] = ("echo",),
    env: Mapping[str, str] | None = None,
    *,
    preloaded: str = "",
) -> Iterator[RunningDaemon]:
    """A daemon with echo models of these names, stopped afterwards. preloaded: PYTORCH or MCP, if
    its children will need it."""
    install_models(home, names)
    daemon = RunningDaemon(daemon_process(home, env or {}, preloaded=preloaded), home)
    try:
        daemon.await_start()
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One daemon for all tests that leave it as it was: models echo, other, tools."""
    home = tmp_path_factory.mktemp("hearth")
    with running_daemon(home, ("echo", "other", "tools")) as daemon:
        yield daemon


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    """Starts daemons of this test's own: start(names=("echo",), env=..., home=...). max_files: the
    hard limit of files that the daemon may open. preloaded: PYTORCH or MCP, if its children will
    need it."""
    open_daemons: list[RunningDaemon] = []

    def start(
        names: Sequence[str] = ("echo",),
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
        max_files: int | None = None,
        *,
        preloaded: str = "",
    ) -> RunningDaemon:
        place = home or tmp_path / f"home-{len(open_daemons)}"
        install_models(place, names)
        process = daemon_process(place, env or {}, max_files, preloaded=preloaded)
        daemon = RunningDaemon(process, place)
        open_daemons.append(daemon)
        daemon.await_start()
        return daemon

    yield start
    for daemon in open_daemons:
        daemon.stop()


@pytest.fixture
def client(shared_daemon: RunningDaemon) -> Iterator[httpx.Client]:
    """A client of the shared daemon."""
    with shared_daemon.client() as http:
        yield http
