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
import random
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
from runner.models.memory_plan import MemoryBudget, plan_memory
from runner.models.supervisor import WorkerHandle
from runner.models.watchdog import Timeouts
from runner.models.worker import Worker
from runner.settings import Settings
from runner.types import GenerateRequest, LoadPlan, Message, SamplingParams
from tests.benchmarks import cluster_usage, servers
from tests.cluster.machines import Machines
from tests.conftest import running_daemon
from tests.real.models import given

# So many as two replicas compute at once; with fewer, each would compute smaller steps
CLIENTS = 32
SHARING = 16  # clients that share prompts
EMBER_TOKENS = 4  # times those of other models: its answers take a fraction of a second
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


async def shared_prompts(worker: Worker, policy: str, rounds: int) -> float:
    """TTFT of clients that ask at once, in an order that is mixed, each after one of 4 system
    prompts of 1,000 tokens, which no replica knows; in each round other ones."""
    rule = "Rule {}: be brief and kind, and say what you know. "
    repeats = 10_000 // len(await worker.tokenize(rule.format(1) * 10, add_special=False))
    waits: list[float] = []
    for turn in range(rounds):
        systems = [f"{turn}.{number} " + rule.format(number) * repeats for number in range(4)]
        numbers = [number % 4 for number in range(SHARING)]
        random.Random(turn).shuffle(numbers)
        asked = [request(f"{at}?", 8, systems[number]) for at, number in enumerate(numbers)]
        told = await asyncio.gather(*(answer(worker, each) for each in asked))
        waits += [first_s for first_s, *_ in told]
    cuts = statistics.quantiles(waits, n=20)
    report("shared prompts", model=worker.name, policy=policy, clients=SHARING, answers=len(waits),
           ttft_p50_ms=cuts[9] * 1000, ttft_p95_ms=cuts[18] * 1000)  # fmt: skip
    return cuts[9]


async def many_streams(worker: Worker, count: int) -> None:
    """Echo streams at once: each text must come back as it was."""
    texts = [f"{number} " + " ".join(str(number * at % 997) for at in range(200)) for number in
             range(count)]  # fmt: skip
    told = await asyncio.gather(*(answer(worker, request(text, 4000)) for text in texts))
    wrong = sum(text not in each[3] for text, each in zip(texts, told, strict=True))
    report("streams", streams=count, replicas=worker.replicas, wrong=wrong)


def pin(pids: Iterable[int], number: int) -> None:
    """Processes to a core."""
    cores = sorted(os.sched_getaffinity(0))
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {cores[number % len(cores)]})


async def _nothing(_: str) -> None:
    """Of what is deployed nothing is loaded here."""


class Bench:
    """The ingress on a cluster that runs. options: see main."""

    def __init__(self, machines: Machines, options: argparse.Namespace) -> None:
        self.machines, self.options = machines, options
        home = machines.nodes[0].home
        self.settings = Settings(home=home)
        self.library = Library(Store.open(home / "models", read_only=True), self.settings, "bench")
        self.cluster = Cluster(self.settings, self.library, "bench", _nothing)

    def asked(self, model: str) -> AskedModel:
        """A model as a lease asks for it."""
        return AskedModel.of(self.library.read(self.library.find(model)), {}, self.settings)

    async def plan(self, model: str) -> LoadPlan:
        """Of the replicas of a model."""
        placed = await self.cluster.place(self.asked(model))
        assert placed is not None
        return placed.plan.load_plan

    async def deployed(self, model: str, count: int, router: Router | None = None) -> ClusterWorker:
        """A model with so many replicas, each with its worker on a core of its own."""
        await asyncio.to_thread(self.machines.deploy, model, count)
        for number, each in enumerate(self.machines.replicas(model)):
            pin((each["pid"], each["worker"]), number)
        unload = {"model": model, "keep_alive": 0}  # the daemon's sessions would be measured, too
        await asyncio.to_thread(self.machines.post, "/api/generate", unload)
        plan = await self.plan(model)
        worker = ClusterWorker(model, plan, Timeouts(), model, self.cluster)
        worker.router = router or worker.router
        await worker.start()
        async with asyncio.timeout(120):
            while worker.replicas < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return worker

    async def echo(self) -> None:
        """The hop, and many streams."""
        far = await self.deployed("echo", 3)
        model = self.asked("echo")
        plan = plan_memory(model.files, model.shape, model.request, MemoryBudget(1 << 32)).load_plan
        near = await WorkerHandle.start("echo", plan, Timeouts())
        await hop(far, near, max(2, self.options.rounds // 10))
        await hop(far, near, self.options.rounds)
        await many_streams(far, 256)
        await far.close()
        await near.close()
        await self._undeploy("echo")

    async def scaling(self, model: str) -> None:
        """Two replicas by one, with clients for both; and what two processes give without any
        cluster, each with half of the clients: what the cores share bounds both."""
        rates, tokens = [], self._tokens(model)
        for count in (1, 2):
            worker = await self.deployed(model, count)
            await self.throughput(worker, model, CLIENTS, tokens // 4)
            rates.append(await self.throughput(worker, model, CLIENTS, tokens))
            if count == 2:
                plan = await self.plan(model)
                waits = [await shared_prompts(worker, "hearth", self.options.cold_rounds)]
            await worker.close()
        report("2 replicas by 1", model=model, ratio=rates[1] / rates[0])
        worker = await self.deployed(model, 2, RoundRobin())
        waits.append(await shared_prompts(worker, "round robin", self.options.cold_rounds))
        await worker.close()
        report("round robin by hearth", model=model, ratio=waits[1] / waits[0])
        await self._undeploy(model)
        await self._local(model, plan)

    async def _undeploy(self, model: str) -> None:
        await asyncio.to_thread(self.machines.post, "/api/cluster/undeploy", {"model": model})

    def _tokens(self, model: str) -> int:
        return int(self.options.tokens) * (EMBER_TOKENS if model == "ember" else 1)

    async def _local(self, model: str, plan: LoadPlan) -> None:
        workers = [await WorkerHandle.start(model, plan, Timeouts()) for _ in range(2)]
        for number, worker in enumerate(workers):
            assert worker.pid is not None
            pin((worker.pid,), number)
        half, rates, tokens = CLIENTS // 2, [], self._tokens(model)
        await self.throughput(workers[1], model, half, tokens // 4)
        for used in (workers[:1], workers):
            told = await asyncio.gather(
                *(self.throughput(each, model, half, tokens) for each in used)
            )
            rates.append(sum(told))
        report("2 local workers by 1", model=model, ratio=rates[1] / rates[0])
        for worker in workers:
            await worker.close()

    async def throughput(self, worker: Worker, name: str, clients: int, tokens: int) -> float:
        """Tokens a second of so many clients at once, each with a prompt of its own."""
        before, began_s = cluster_usage.seconds(self.machines), time.perf_counter()
        asked = [
            request(f"{number} {chr(97 + number) * 40} story", tokens) for number in range(clients)
        ]
        told = await asyncio.gather(*(answer(worker, each) for each in asked))
        took_s, made = time.perf_counter() - began_s, sum(each[2] for each in told)
        used = cluster_usage.between(before, cluster_usage.seconds(self.machines))
        report("throughput", model=name, replicas=worker.replicas, clients=clients,
               tokens_per_s=made / took_s)  # fmt: skip
        report("processor ms per token", model=name, seconds=took_s,
               **{role: 1000 * used_s / made for role, used_s in used.items()})  # fmt: skip
        return made / took_s

    async def run(self, only: Sequence[str]) -> None:
        """What only names: echo, or models."""
        for name in only:
            await (self.echo() if name == "echo" else self.scaling(name))
        await self.cluster.close()


def main() -> None:
    """Run on a cluster of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="of echo, ember and bench, which is --model")
    parser.add_argument("--model", help="a GGUF file, or a model of `make real-models`, as well")
    parser.add_argument("--rounds", type=int, default=500, help="of the hop")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--cold-rounds", type=int, default=3, help="of the shared prompts")
    options = parser.parse_args()
    all_names = ["echo", "ember", *([servers.MODEL_NAME] if options.model else [])]
    only = options.only.split(",") if options.only else all_names
    with tempfile.TemporaryDirectory(prefix="hearth-") as root:
        machines = Machines.start(Path(root), 2, cpus=4)
        try:
            with running_daemon(machines.nodes[0].home, ("echo",)) as daemon:
                state = json.loads((daemon.home / "state" / "daemon.json").read_text())
                machines.url, machines.token = daemon.url, state["token"]
                if options.model:
                    port = int(daemon.url.rpartition(":")[2])
                    servers.install_model(given(options.model).absolute(), daemon.home, port)
                asyncio.run(Bench(machines, options).run(only))
        finally:
            machines.stop()


if __name__ == "__main__":
    main()
