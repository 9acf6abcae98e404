"""The training loop: reproducible from its seed, resumable from its checkpoint.

`python -m tests.ember.train --work FOLDER` writes tokenizer.json, checkpoint.pt
and log.jsonl to FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from runner.jobs.distillation.optimizer import optimizers, rate_factor
from tests.ember.chat import segments
from tests.ember.data import Batches, Sample, padded
from tests.ember.mixture import stream
from tests.ember.model import Network, Shape
from tests.ember.tokenizer import Tokenizer, learn, token_features

VOCABULARY_SAMPLES = 40_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does; the same plan gives the same weights on the same machine."""

    steps: int = 8000
    batch_tokens: int = 3072
    batches_per_step: int = 2
    seed: int = 1
    threads: int = 2
    checkpoint_every: int = 100


def vocabulary(work: Path, seed: int) -> Tokenizer:
    """The tokenizer of this run, learned once and kept in `work`."""
    path = work / "tokenizer.json"
    if not path.exists():
        texts = (
            "".join(text for text, _ in segments(c))
            for c in islice(stream(seed), VOCABULARY_SAMPLES)
        )
        learn(texts).save(path)
    return Tokenizer.load(path)


def new_network(tokenizer: Tokenizer, shape: Shape) -> Network:
    """A network with the features of the tokens."""
    rows, _ = token_features(tokenizer)
    return Network(shape, torch.tensor(rows))


def tensors(samples: list[Sample]) -> tuple[Tensor, Tensor]:
    """Tokens int64 and weights fp32, both `[batch, longest]`."""
    tokens, weights = padded(samples)
    return torch.tensor(tokens), torch.tensor(weights)


class Run:
    """One training run and everything its checkpoint holds."""

    def __init__(self, work: Path, plan: Plan, shape: Shape) -> None:
        self.work, self.plan = work, plan
        torch.manual_seed(plan.seed)
        torch.set_num_threads(plan.threads)
        self.tokenizer = vocabulary(work, plan.seed)
        self.network = new_network(self.tokenizer, shape)
        self.optimizers = optimizers(self.network)
        self.base_rates = [group["lr"] for o in self.optimizers for group in o.param_groups]
        self.pool = ThreadPoolExecutor(
            min(plan.threads, plan.batches_per_step),
            initializer=torch.set_num_threads,
            initargs=(1,),
        )
        self.batches = Batches(plan.seed, self.tokenizer, plan.batch_tokens)
        self.step, self.tokens_seen, self.seconds = 0, 0, 0.0

    def save(self) -> None:
        """Replace the checkpoint; a kill at any moment leaves the old or the new one."""
        state = {
            "shape": asdict(self.network.shape),
            "network": self.network.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "tokens_seen": self.tokens_seen,
            "seconds": self.seconds,
            "batches": (self.batches.pool, self.batches.taken),
        }
        part = self.work / "checkpoint.part"
        torch.save(state, part)
        part.replace(self.work / "checkpoint.pt")

    def resume(self) -> None:
        """Continue from the checkpoint in the work folder."""
        state = torch.load(self.work / "checkpoint.pt", weights_only=True)
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.tokens_seen, self.seconds = (
            state["step"],
            state["tokens_seen"],
            state["seconds"],
        )
        self.batches.skip_to(*state["batches"])

    def train(self) -> None:
        """Run to the end of the plan."""
        while self.step < self.plan.steps:
            started = time.monotonic()
            factor = rate_factor(self.step, self.plan.steps)
            loss = self._one_step(
                [next(self.batches) for _ in range(self.plan.batches_per_step)], factor
            )
            self.step += 1
            # A pause (SIGSTOP) is not training time.
            self.seconds += min(time.monotonic() - started, 20.0)
            if self.step % 20 == 0:
                self._log(loss, factor)
            if self.step % self.plan.checkpoint_every == 0:
                self.save()
        self.save()

    def _one_step(self, parts: list[list[Sample]], factor: float) -> float:
        rates = iter(self.base_rates)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = next(rates) * factor
        # Folding the features is dear on the CPU: once per step, not once per batch.
        folded = self.network.embedding()
        embedding = folded.detach().requires_grad_()

        def gradients(part: list[Sample]) -> tuple[float, int]:
            tokens, weights = tensors(part)
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                loss = self.network.loss(tokens, weights, embedding) / len(parts)
            loss.backward()
            return float(loss.detach()), int(tokens.numel())

        # A thread per batch: at these sizes two cores work on two batches nearly twice as fast as
        # both on one. The sum of two gradients is the same in either order.
        results = list(self.pool.map(gradients, parts))
        total = sum(loss for loss, _ in results)
        self.tokens_seen += sum(count for _, count in results)
        folded.backward(embedding.grad)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total

    def _log(self, loss: float, factor: float) -> None:
        row = {
            "step": self.step,
            "loss": round(loss, 4),
            "rate": round(factor, 3),
            "tokens": self.tokens_seen,
            "seconds": round(self.seconds, 1),
        }
        with (self.work / "log.jsonl").open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(
            f"step {self.step} loss {loss:.3f} {self.tokens_seen / 1e6:.2f} M tokens"
            f" {self.tokens_seen / self.seconds:.0f} tokens/s",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    """Command line of the training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for tokenizer, checkpoint and log"
    )
    parser.add_argument("--steps", type=int, default=Plan().steps)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--pid-file", type=Path, default=None, help="write the process id here")
    chosen = parser.parse_args(arguments)
    chosen.work.mkdir(parents=True, exist_ok=True)
    if chosen.pid_file is not None:
        chosen.pid_file.write_text(str(os.getpid()))
    plan = Plan(steps=chosen.steps, seed=chosen.seed, threads=chosen.threads)
    run = Run(chosen.work, plan, Shape())
    if chosen.resume:
        run.resume()
    print(f"{run.network.parameter_count() / 1e6:.2f} M parameters", flush=True)
    run.train()


if __name__ == "__main__":
    main()
