"""The job that trains a small model to predict what a larger one does, in a process of its own.

Job: {"model": the teacher's path, "text": path, "student": {...} in the words of config.json,
"target": path, "separator", "answer": [before, after] or null, "context", "epochs", "steps" or
null, "seed", "threads", "native_kernels", "available_bytes": memory that is free}. What it needs to
go on from is in the folder of target, which is for this job only. done: {"parameters",
"teacher_parameters", "documents", "tokens", "steps", "began_as_teacher", "losses": [[step, nats],
...], "divergence", "agreement"}.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from registry.formats.gguf import GgufHeader
from registry.formats.gguf.reader import read_header
from runner.errors import Unsupported
from runner.jobs.distillation.batches import Plan
from runner.jobs.distillation.corpus import Corpus, Targets, TextForm, ask_teacher, read_corpus
from runner.jobs.distillation.memory import training_memory
from runner.jobs.distillation.student import Shape, shape_of
from runner.jobs.job import Report
from runner.jobs.llamacpp.evaluation import Measurement, open_model
from runner.jobs.measured_model import read_text

_MAX_CONTEXT = 2048


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Train. Raises InvalidRequest, InvalidGguf, ModelLoadFailed, InternalError, Unsupported
    without PyTorch, InsufficientMemory before the teacher is asked, OSError."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise Unsupported("distillation needs PyTorch: install hearth with --with-torch")
    header = read_header(job["model"])
    shape = shape_of(job["student"], header)
    threads = job.get("threads") or os.cpu_count() or 1
    plan = Plan(steps=1, threads=threads, batches_per_step=min(2, threads), seed=job.get("seed", 1))
    free_bytes = job["available_bytes"]
    training_memory(shape, plan).require(free_bytes, plan)
    # PyTorch's optimizers look for a folder of compiled code, of which there is none, and make it
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(job["target"]).parent)
    # Threads that spin for long cost more than they save as soon as anything else runs
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    context = min(job.get("context") or _MAX_CONTEXT, shape.context, header.context_length or 512)
    answer = tuple(job["answer"]) if job.get("answer") else None
    form = TextForm(context, job["separator"], answer)

    def check(corpus: Corpus) -> None:
        training_memory(shape, plan, corpus).require(free_bytes, plan)

    corpus, targets = _taught(job, form, check, report)
    return _trained(job, header, shape, (corpus, targets), plan, report)


def _taught(
    job: Mapping[str, Any], form: TextForm, check: Callable[[Corpus], None], report: Report
) -> tuple[Corpus, Targets]:
    """The text, which check may refuse, and what the teacher says of it; the teacher's memory is
    free then."""
    native = job.get("native_kernels", True)
    wanted = Measurement(form.context, native_kernels=native, threads=job.get("threads"))
    report("opening the teacher", 0, 1)
    with open_model(Path(job["model"]), wanted) as teacher:
        tokenizer = teacher.tokenizer()
        text = read_text(Path(job["text"]))
        corpus = read_corpus(tokenizer, text, form, add_bos=teacher.adds_bos)
        check(corpus)
        targets = Targets(Path(job["target"]).with_name("targets"), corpus)
        ask_teacher(
            teacher, corpus, targets, lambda done, total: report("asking the teacher", done, total)
        )
    return corpus, targets


def _trained(
    job: Mapping[str, Any],
    header: GgufHeader,
    shape: Shape,
    taught: tuple[Corpus, Targets],
    plan: Plan,
    report: Report,
) -> dict[str, Any]:
    from runner.jobs.distillation.beginning import begins_as
    from runner.jobs.distillation.student_file import write_student
    from runner.jobs.distillation.training import Training

    corpus, targets = taught
    target = Path(job["target"])
    a_step = plan.batch_tokens * plan.batches_per_step
    steps = job.get("steps") or math.ceil(job["epochs"] * len(corpus.tokens) / a_step)
    plan = replace(plan, steps=steps)
    training = Training(shape, corpus, targets, plan, target.parent)
    began = begins_as(shape, header)
    if not training.resume() and began:
        training.begin_as(header, lambda done, total: report("taking layers", done, total))
    training.train(
        lambda done, total, loss: report("training", done, total, {"loss": round(loss, 4)})
    )
    held = training.measure()
    write_student(training.student, shape, header, target)
    return {
        "parameters": shape.parameters,
        "teacher_parameters": header.parameter_count,
        "documents": corpus.documents,
        "tokens": len(corpus.tokens),
        "steps": steps,
        "began_as_teacher": began,
        "losses": training.losses,
        "divergence": held and held.divergence,
        "agreement": held and held.agreement,
    }
