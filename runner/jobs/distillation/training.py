"""The training loop: reproducible from its seed, resumable from its checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from registry.formats.gguf import GgufHeader
from runner.backends.host_sampling.threads import threads_for
from runner.errors import InternalError
from runner.jobs.distillation.batches import Batches, Plan, held_out, sampled
from runner.jobs.distillation.beginning import SAMPLE_TOKENS, begin_as
from runner.jobs.distillation.corpus import Corpus, Targets
from runner.jobs.distillation.network import Student, divergence
from runner.jobs.distillation.optimizer import optimizers, rate_factor
from runner.jobs.distillation.student import Shape

_LOG_STEPS: Final = 20
_UNSAVED_S: Final = 300.0  # of training are lost at most, where steps take long


@dataclass(frozen=True, slots=True)
class Held:
    """Of documents that were not learned: divergence from the teacher in nats a token, and how
    often the student's likeliest token is the teacher's."""

    divergence: float
    agreement: float


class Batch:
    """Documents side by side. tokens int64 [documents, longest], places bool of that shape, ids
    int64 and logprobs fp32 [places, k], in the order of places."""

    def __init__(self, corpus: Corpus, targets: Targets, documents: list[int]) -> None:
        spans = [corpus.starts[[each, each + 1]] for each in documents]
        longest = max(int(end - begin) for begin, end in spans)
        tokens = np.zeros((len(documents), longest), np.int64)
        places = np.zeros((len(documents), longest), np.bool_)
        for row, (begin, end) in enumerate(spans):
            tokens[row, : end - begin] = corpus.tokens[begin:end]
            places[row, : end - begin] = corpus.learned[begin:end]
        known = [targets.read(each) for each in documents]
        self.tokens, self.places = torch.from_numpy(tokens), torch.from_numpy(places)
        self.ids = torch.from_numpy(np.concatenate([ids for ids, _ in known]).astype(np.int64))
        self.logprobs = torch.from_numpy(np.concatenate([nats for _, nats in known]))


class Training:
    """One run, and everything that its checkpoint holds."""

    def __init__(
        self, shape: Shape, corpus: Corpus, targets: Targets, plan: Plan, folder: Path
    ) -> None:
        torch.manual_seed(plan.seed)
        torch.set_num_threads(plan.threads)
        self.plan, self._corpus, self._targets, self._folder = plan, corpus, targets, folder
        self.student = Student(shape, shape.vocabulary, shape.layers, shape.context)
        self._shape = shape
        self.losses: list[tuple[int, float]] = []
        self.step = 0
        self._saved_at = time.monotonic()
        self._held = held_out(corpus)
        self._batches = Batches(corpus, plan)
        self._optimizers = optimizers(self.student, plan.matrix_rate, plan.vector_rate)
        self._rates = [group["lr"] for each in self._optimizers for group in each.param_groups]
        self._pool = ThreadPoolExecutor(
            min(plan.threads, plan.batches_per_step),
            initializer=torch.set_num_threads,
            initargs=(1,),
        )

    @property
    def _checkpoint(self) -> Path:
        return self._folder / "checkpoint.pt"

    def save(self) -> None:
        """Replace the checkpoint; a kill at any moment leaves the old or the new one."""
        state = {
            "student": self.student.state_dict(),
            "optimizers": [each.state_dict() for each in self._optimizers],
            "step": self.step,
            "losses": json.dumps(self.losses),
            "batches": (self._batches.epoch, self._batches.taken),
            "plan": asdict(self.plan),
        }
        part = self._checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(self._checkpoint)
        self._saved_at = time.monotonic()

    def resume(self) -> bool:
        """Go on from the checkpoint; False where there is none of this plan."""
        if not self._checkpoint.is_file():
            return False
        state: dict[str, Any] = torch.load(self._checkpoint, weights_only=True)
        if state["plan"] != asdict(self.plan):
            return False
        self.student.load_state_dict(state["student"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]
        self.losses = [(step, loss) for step, loss in json.loads(state["losses"])]
        self._batches.skip_to(*state["batches"])
        return True

    def begin_as(self, teacher: GgufHeader, report: Callable[[int, int], None]) -> None:
        """See begin_as() of beginning.py."""
        documents = sampled(self._corpus, self.plan, SAMPLE_TOKENS)
        tokens = [torch.from_numpy(each).long() for each in documents]
        torch.set_num_threads(min(self.plan.threads, threads_for(teacher.tensors_size_bytes)))
        begin_as(self.student, self._shape, teacher, tokens, report)
        torch.set_num_threads(self.plan.threads)

    def train(self, report: Callable[[int, int, float], None]) -> None:
        """Run to the end of the plan. report: steps done, all steps, the loss. Raises InternalError
        where it diverges."""
        while self.step < self.plan.steps:
            documents = [next(self._batches) for _ in range(self.plan.batches_per_step)]
            loss = self._one_step([self._batch(each) for each in documents])
            self.step += 1
            if not np.isfinite(loss):
                raise InternalError(f"the training diverged at step {self.step}: the loss is NaN")
            if self.step % _LOG_STEPS == 0 or self.step == self.plan.steps:
                self.losses.append((self.step, round(loss, 4)))
            due = self.step % self.plan.checkpoint_every == 0 or self.step == self.plan.steps
            if due or time.monotonic() - self._saved_at > _UNSAVED_S:
                self.save()
            report(self.step, self.plan.steps, loss)

    def measure(self) -> Held | None:
        """On the documents that were held out; None where the text is too short for any."""
        if not len(self._held):
            return None
        apart: list[Tensor] = []
        agree: list[Tensor] = []
        with torch.no_grad():
            for document in self._held.tolist():
                batch = self._batch([document])
                logits = self.student.logits(batch.tokens, batch.places)
                apart.append(divergence(logits, batch.ids, batch.logprobs))
                best = batch.ids.gather(-1, batch.logprobs.argmax(-1, keepdim=True))[:, 0]
                agree.append(logits.argmax(-1) == best)
        return Held(float(torch.cat(apart).mean()), float(torch.cat(agree).float().mean()))

    def _batch(self, documents: list[int]) -> Batch:
        return Batch(self._corpus, self._targets, documents)

    def _one_step(self, parts: list[Batch]) -> float:
        factor = rate_factor(self.step, self.plan.steps)
        rates = iter(self._rates)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = next(rates) * factor

        weights = [weight for weight in self.student.parameters() if weight.requires_grad]

        def gradients(part: Batch) -> tuple[float, tuple[Tensor, ...]]:
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                logits = self.student.logits(part.tokens, part.places)
            loss = divergence(logits, part.ids, part.logprobs).mean() / len(parts)
            return float(loss.detach()), torch.autograd.grad(loss, weights)

        # A thread for each batch: at small sizes two cores work on two batches nearly twice as fast
        # as both on one. The sum of two gradients is the same in either order.
        results = list(self._pool.map(gradients, parts))
        for weight, *found in zip(weights, *(each for _, each in results), strict=True):
            weight.grad = sum(found[1:], start=found[0])
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return sum(loss for loss, _ in results)
