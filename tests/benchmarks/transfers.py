"""Push and pull against curl: python -m tests.benchmarks.transfers [--mib 2048] [--rounds 3].

docker-registry (HEARTH_TEST_REGISTRY names it where PATH does not) serves one blob of random
bytes on loopback. A pull is compared with `curl | sha256sum` of the same blob, a push with curl's
upload of the same file; the sides alternate. Beside the rates: the growth of this process's
memory, its CPU time, and how late the event loop comes to a timer that wants it every 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from cli.bench.machine import machine_facts
from registry.hosts.references import parse
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store
from runner.library.transfers import Transfers
from runner.settings import load
from tests.integration.docker_registry import docker_registry

TARGETS = {"pull": 0.8, "push": 0.7}
RSS_TARGET_MIB = 64
DELAY_TARGET_MS = 20
_TICK_S = 0.005


@dataclass(frozen=True, slots=True)
class Measured:
    """One transfer by hearth, and curl's before it."""

    kind: str
    rate: float  # MiB/s
    curl: float  # MiB/s
    rss_mib: float
    delay_ms: float  # the longest
    cpu_s: float

    @property
    def ratio(self) -> float:
        """Our rate in parts of curl's."""
        return self.rate / self.curl

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.rate:.0f} MiB/s, curl {self.curl:.0f}, ratio {self.ratio:.2f}; "
            f"memory +{self.rss_mib:.0f} MiB, loop delay {self.delay_ms:.0f} ms, "
            f"CPU {self.cpu_s:.2f} s"
        )


def main() -> None:
    """Measure, print every round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.transfers")
    parser.add_argument("--mib", type=int, default=2048, help="size of the blob")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(json.dumps(machine_facts()))
    results: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="hearth-bench-") as scratch:
        folder = Path(scratch)
        (folder / "registry").mkdir()
        store = Store.open(folder / "models")
        layers = _blobs(store, given.mib)
        for number in range(given.rounds):
            with docker_registry(folder / "registry") as address:
                name = Name.parse(f"{address}/team/model:v{number}")
                store.put_manifest(name, Manifest(layers[0], (layers[1],)))
                results += _round(folder, store, name, layers[1])
            _empty(folder / "registry" / "data")
    _summary(results)


def _blobs(store: Store, mib: int) -> tuple[Descriptor, Descriptor]:
    with store.blob_writer() as writer:
        writer.write(b'{"model_format":"gguf"}')
        config = Descriptor(CONFIG_TYPE, *writer.commit())
    with store.blob_writer() as writer:
        for _ in range(mib):
            writer.write(os.urandom(1 << 20))
        return config, Descriptor(MODEL_TYPE, *writer.commit())


def _round(folder: Path, store: Store, name: Name, layer: Descriptor) -> list[Measured]:
    mib = layer.size_bytes / 2**20
    upload_s = _curl_upload(name.host, store.blob_path(layer.digest), str(layer.digest))
    pushed = asyncio.run(_watched("push", store, name, mib, mib / upload_s))
    download_s = _curl_download(name, str(layer.digest))
    other = Store.open(folder / f"models-{name.tag}")
    pulled = asyncio.run(_watched("pull", other, name, mib, mib / download_s))
    assert len(other.read_blob(layer.digest, layer.size_bytes)) == layer.size_bytes
    other.close()
    _empty(other.root)
    return [pushed, pulled]


def _curl_upload(host: str, path: Path, digest: str) -> float:
    begun = httpx.post(f"http://{host}/v2/curl/model/blobs/uploads/")
    location = httpx.URL(f"http://{host}").join(begun.headers["location"])
    url = location.copy_merge_params({"digest": digest})
    kind = "Content-Type: application/octet-stream"
    return _timed(f"curl -sf -T '{path}' -H '{kind}' -H 'Expect:' '{url}'")


def _curl_download(name: Name, digest: str) -> float:
    url = f"http://{name.host}/v2/{name.namespace}/{name.model}/blobs/{digest}"
    return _timed(f"curl -sf '{url}' | sha256sum")


def _timed(command: str) -> float:
    os.sync()  # what the side before has written must not slow this one down
    begun_s = time.monotonic()
    subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun_s


async def _watched(kind: str, store: Store, name: Name, mib: float, curl: float) -> Measured:
    transfers = Transfers(store, load({"HEARTH_HOME": str(store.root)}), "bench")
    start: Callable[..., Any] = transfers.pull if kind == "pull" else transfers.push
    process, watch = psutil.Process(), _Watch()
    # The first transfer of a process imports the HTTP client: not what is measured here.
    await asyncio.to_thread(__import__, "runner.library.hosts")
    before_bytes, cpu_s = process.memory_info().rss, _cpu_s()
    await asyncio.to_thread(os.sync)
    watching = asyncio.create_task(watch.run(process))
    begun_s = time.monotonic()
    await _end_of(
        start(parse(f"oci://{name.host}/{name.namespace}/{name.model}:{name.tag}"), False)
    )
    taken_s = time.monotonic() - begun_s
    watching.cancel()
    await transfers.close()
    grown = (watch.rss_bytes - before_bytes) / 2**20
    return Measured(kind, mib / taken_s, curl, grown, watch.delay_s * 1e3, _cpu_s() - cpu_s)


async def _end_of(job: Any) -> None:
    await job.task


class _Watch:
    """The longest delay of the event loop, and the most memory."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.rss_bytes = 0

    async def run(self, process: psutil.Process) -> None:
        """Look every 5 ms until cancelled."""
        while True:
            begun_s = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self.delay_s = max(self.delay_s, time.monotonic() - begun_s - _TICK_S)
            self.rss_bytes = max(self.rss_bytes, process.memory_info().rss)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _empty(folder: Path) -> None:
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def _summary(results: list[Measured]) -> None:
    for one in results:
        print(one)
    for kind, target in TARGETS.items():
        ratio = statistics.median(one.ratio for one in results if one.kind == kind)
        rss = max(one.rss_mib for one in results if one.kind == kind)
        delay = max(one.delay_ms for one in results if one.kind == kind)
        print(
            f"{kind}: median ratio {ratio:.2f} (target {target}), memory +{rss:.0f} MiB (target "
            f"{RSS_TARGET_MIB}), loop delay {delay:.0f} ms (target {DELAY_TARGET_MS})"
        )


if __name__ == "__main__":
    main()
