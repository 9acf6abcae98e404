"""python -m tests.benchmarks.cluster: what replicas bring and cost, on nodes of this machine.

An ingress of its own beside the daemon's: no HTTP, the frames are what is measured. Each replica
and its worker are pinned to one core. Prints JSON lines, each with the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from registry.store import Store
from runner.cluster.cluster import Cluster
from runner.cluster.cluster_worker import ClusterWorker
from runner.cluster.routing import Router
from runner.library.library import Library
from runner.models.lease import AskedModel
from runner.models.supervisor import WorkerHandle
from runner.models.watchdog import Timeouts
from runner.models.worker import Worker
from runner.settings import Settings
from runner.types import GenerateRequest, Message, SamplingParams
from tests.benchmarks import servers
from tests.cluster.machines import Machines
from tests.conftest import running_daemon
from tests.real.models import given

CLIENTS = (
    32  # so many as two replicas compute at once; with fewer, each would compute smaller steps
)
_ids = itertools.count()


class RoundRobin(Router):
    """For comparison."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = itertools.count()

    def choose(
        self,
        blocks: Sequence[bytes],
        loads: Mapping[str, int],
        weight: int = 1,
        but: Iterable[str] = (),
    ) -> str | None:
        able = sorted(self.replicas.difference(but))
        return able[next(self._turn) % len(able)] if able else None


def report(what: str, **figures: Any) -> None:
    """One line."""
    load = round(os.getloadavg()[0], 1)
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps({"what": what, **rounded, "load": load}), flush=True)


def request(text: str, tokens: int, system: str = "") -> GenerateRequest:
    """A chat of so many tokens."""
    turns = (Message("system", system),) if system else ()
    return GenerateRequest(
        id=f"bench-{next(_ids)}", model="bench", messages=(*turns, Message("user", text)),
        max_tokens=tokens, ignore_eos=True, sampling=SamplingParams(seed=1, temperature=0.0),
    )  # fmt: skip


async def answer(worker: Worker, asked: GenerateRequest) -> tuple[float, float, int, str]:
    """Seconds to the first delta and to the last, tokens, text."""
    began_s, first_s, tokens, text = time.perf_counter(), None, 0, ""
    stream = worker.generate([asked])
    while not stream.done:
        for _, delta in await stream.read():
            first_s = first_s or time.perf_counter() - began_s
            tokens, text = tokens + delta.token_count, text + delta.text
    return first_s or 0.0, time.perf_counter() - began_s, tokens, text


async def throughput(worker: Worker, name: str, clients: int, tokens: int) -> float:
    """Tokens a second of so many clients at once, each with a prompt of its own."""
    began_s = time.perf_counter()
    asked = [
        request(f"{number} {chr(97 + number) * 40} story", tokens) for number in range(clients)
    ]
    told = await asyncio.gather(*(answer(worker, each) for each in asked))
    rate = sum(each[2] for each in told) / (time.perf_counter() - began_s)
    report("throughput", model=name, replicas=worker.replicas, clients=clients, tokens_per_s=rate)
    return rate


async def hop(far: Worker, near: Worker, rounds: int) -> None:
    """What a replica adds to the first delta of an echo, in turns with a local worker."""
    times: dict[str, list[float]] = {"far": [], "near": []}
    for _ in range(rounds):
        for name, worker in (("near", near), ("far", far)):
            times[name].append((await answer(worker, request("ping", 1)))[0] * 1000)
    cuts = {name: statistics.quantiles(all, n=100) for name, all in times.items()}
    report("hop", rounds=rounds, near_p50_ms=cuts["near"][49], far_p50_ms=cuts["far"][49],
           added_p50_ms=cuts["far"][49] - cuts["near"][49],
           added_p99_ms=cuts["far"][98] - cuts["near"][98])  # fmt: skip


async def shared_prompts(worker: Worker, policy: str, clients: int, rounds: int) -> float:
    """TTFT of clients with 4 system prompts of some 1,000 tokens, in an order that is mixed."""
    systems = [f"{number}. " + f"Rule {number}: be brief and kind. " * 33 for number in range(4)]
    waits: list[float] = []

    async def client(number: int) -> None:
        for turn in range(rounds):
            asked = request(f"{number}/{turn}?", 4, systems[(number * 7 + turn // 3) % 4])
            waits.append((await answer(worker, asked))[0])

    await asyncio.gather(*(client(number) for number in range(clients)))
    p50 = statistics.median(waits)
    report("shared prompts", policy=policy, clients=clients, ttft_p50_ms=p50 * 1000)
    return p50


async def many_streams(worker: Worker, count: int) -> None:
    """Echo streams at once: each text must come back as it was."""
    texts = [f"{number} " + " ".join(str(number * at % 997) for at in range(200)) for number in
             range(count)]  # fmt: skip
    told = await asyncio.gather(*(answer(worker, request(text, 4000)) for text in texts))
    wrong = sum(text not in each[3] for text, each in zip(texts, told, strict=True))
    report("streams", streams=count, replicas=worker.replicas, wrong=wrong)


def pin(machines: Machines, model: str) -> None:
    """Each replica and its worker to a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    for number, replica in enumerate(machines.replicas(model)):
        for pid in (replica["pid"], replica["worker"]):
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {cores[number % len(cores)]})


async def measure(machines: Machines, only: set[str], rounds: int) -> None:
    """What only names: echo, or a model of which two replicas are compared with one; of ember the
    routers as well."""
    home = machines.nodes[0].home
    settings = Settings(home=home)
    library = Library(Store.open(home / "models", read_only=True), settings, "bench")
    cluster = Cluster(settings, library, "bench")

    async def opened(model: str, router: Router | None = None) -> ClusterWorker:
        bundle = library.read(library.find(model))
        placed = await cluster.place(AskedModel.of(bundle, {}, settings))
        assert placed is not None
        worker = ClusterWorker(model, placed.plan.load_plan, Timeouts(), model, cluster)
        worker.router = router or worker.router
        return await worker.start()

    async def deployed(model: str, count: int, router: Router | None = None) -> ClusterWorker:
        await asyncio.to_thread(machines.deploy, model, count)
        await asyncio.to_thread(pin, machines, model)
        worker = await opened(model, router)
        async with asyncio.timeout(120):
            while worker.replicas < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return worker

    if "echo" in only:
        far = await deployed("echo", 3)
        plan = AskedModel.of(library.read(library.find("echo")), {}, settings)
        from runner.models.memory_plan import MemoryBudget, plan_memory

        local = plan_memory(plan.files, plan.shape, plan.request, MemoryBudget(1 << 32)).load_plan
        near = await WorkerHandle.start("echo", local, Timeouts())
        await hop(far, near, 50)
        await hop(far, near, rounds)
        await many_streams(far, 256)
        await far.close()
        await near.close()
    for model in only - {"echo"}:
        rates = []
        for count in (1, 2):
            worker = await deployed(model, count)
            await throughput(worker, model, CLIENTS, 32)
            rates.append(await throughput(worker, model, CLIENTS, 128))
            if (model, count) == ("ember", 2):
                waits = [await shared_prompts(worker, "hearth", 16, 6)]
            await worker.close()
        report("2 replicas by 1", model=model, ratio=rates[1] / rates[0])
    if "ember" in only:
        worker = await deployed("ember", 2, RoundRobin())
        waits.append(await shared_prompts(worker, "round robin", 16, 6))
        report("round robin by hearth", ratio=waits[1] / waits[0])
        await worker.close()
    await cluster.close()


def main() -> None:
    """Run on a cluster of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="echo,ember")
    parser.add_argument(
        "--model",
        help="a GGUF file, or a model of `make real-models`, instead: two replicas by one",
    )
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()
    only = {servers.MODEL_NAME} if options.model else set(options.only.split(","))
    with tempfile.TemporaryDirectory(prefix="hearth-") as root:
        machines = Machines.start(Path(root), 2, cpus=4)
        try:
            with running_daemon(machines.nodes[0].home, ("echo",)) as daemon:
                state = json.loads((daemon.home / "state" / "daemon.json").read_text())
                machines.url, machines.token = daemon.url, state["token"]
                if options.model:
                    port = int(daemon.url.rpartition(":")[2])
                    servers.install_model(given(options.model).absolute(), daemon.home, port)
                asyncio.run(measure(machines, only, options.rounds))
        finally:
            machines.stop()


if __name__ == "__main__":
    main()
