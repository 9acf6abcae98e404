"""Students learn from what a teacher said, go on where they were, and begin as their teacher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from registry.formats.gguf.reader import read_header  # noqa: E402
from runner.jobs.distillation.batches import Plan  # noqa: E402
from runner.jobs.distillation.beginning import begin_as  # noqa: E402
from runner.jobs.distillation.corpus import TOP, Corpus, Targets  # noqa: E402
from runner.jobs.distillation.network import Student, divergence  # noqa: E402
from runner.jobs.distillation.student import Shape, shape_of  # noqa: E402
from runner.jobs.distillation.student_file import write_student  # noqa: E402
from runner.jobs.distillation.training import Training  # noqa: E402

VOCABULARY = 64
SHAPE = Shape(VOCABULARY, 32, 1, 2, 1, 32, context=32)
PLAN = Plan(steps=30, batch_tokens=128, threads=1, checkpoint_every=10)
EMBER = read_header(Path(__file__).parents[5] / "registry/builtin/ember/ember.gguf")


@pytest.fixture
def taught(tmp_path: Path) -> tuple[Corpus, Targets]:
    """Documents in which the next token follows from the last one, and a sure teacher."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(6, 20, 120)
    texts = [(rng.integers(VOCABULARY) + np.arange(each)) % VOCABULARY for each in lengths]
    learned = [np.append(np.ones(each - 1, bool), False) for each in lengths]
    corpus = Corpus(
        np.concatenate(texts).astype(np.int32),
        np.concatenate(([0], np.cumsum(lengths))),
        np.concatenate(learned),
    )
    targets = Targets(tmp_path / "targets", corpus)
    for number, text in enumerate(texts):
        ids = (text[1:, None] + np.arange(TOP)) % VOCABULARY
        nats = np.log(np.r_[0.9, np.full(TOP - 1, 0.09 / (TOP - 1))])
        targets.write(number, ids.astype(np.int32), np.tile(nats, (len(ids), 1)).astype(np.float32))
    return corpus, targets


def weights(training: Training) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return [each.detach().numpy().copy() for each in training.student.parameters()]


def quiet(_step: int, _steps: int, _loss: float) -> None:
    """Nobody looks."""


def test_a_student_comes_near_its_teacher(taught: tuple[Corpus, Targets], tmp_path: Path) -> None:
    training = Training(SHAPE, *taught, replace(PLAN, steps=150), tmp_path)
    before = training.measure()
    training.train(quiet)
    after = training.measure()
    assert before is not None
    assert after is not None
    assert after.divergence < before.divergence / 3
    assert after.agreement > 0.9
    assert training.losses[-1][0] == 150
    assert training.losses[-1][1] < training.losses[0][1]


def test_an_interrupted_training_ends_with_the_same_weights(
    taught: tuple[Corpus, Targets], tmp_path: Path
) -> None:
    whole = Training(SHAPE, *taught, PLAN, tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole.train(quiet)

    class Killed(Exception):
        """In the middle of a step."""

    def kill(step: int, _steps: int, _loss: float) -> None:
        if step == 17:
            raise Killed

    first = Training(SHAPE, *taught, PLAN, tmp_path / "parts")
    with pytest.raises(Killed):
        first.train(kill)
    second = Training(SHAPE, *taught, PLAN, tmp_path / "parts")
    assert second.resume()
    assert second.step == 10
    second.train(quiet)
    assert second.losses == whole.losses
    for mine, theirs in zip(weights(second), weights(whole), strict=True):
        assert np.array_equal(mine, theirs)


def test_steps_that_take_long_are_saved_between_checkpoints(
    taught: tuple[Corpus, Targets], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**6, 70))  # seconds: every fifth step is due
    monkeypatch.setattr("runner.jobs.distillation.training.time.monotonic", lambda: next(clock))
    plan = replace(PLAN, checkpoint_every=100)
    saved: list[int] = []

    class Watched(Training):
        def save(self) -> None:
            saved.append(self.step)
            super().save()

    Watched(SHAPE, *taught, plan, tmp_path).train(quiet)
    assert saved[:2] == [5, 10]
    assert saved[-1] == PLAN.steps


def test_the_checkpoint_of_another_plan_is_left_alone(
    taught: tuple[Corpus, Targets], tmp_path: Path
) -> None:
    Training(SHAPE, *taught, PLAN, tmp_path).save()
    assert not Training(SHAPE, *taught, replace(PLAN, steps=40), tmp_path).resume()


def test_the_divergence_is_that_of_whole_distributions_with_the_rest_as_one() -> None:
    logits = torch.randn(3, 10, dtype=torch.float64)
    teacher = torch.randn(3, 10, dtype=torch.float64).log_softmax(-1)
    ids = teacher.topk(4).indices
    p, q = teacher.exp(), logits.softmax(-1)
    known, own = p.gather(-1, ids), q.gather(-1, ids)
    whole = [torch.cat([each, 1 - each.sum(-1, keepdim=True)], -1) for each in (known, own)]
    expected = (whole[0] * (whole[0] / whole[1]).log()).sum(-1)
    found = divergence(logits, ids, teacher.gather(-1, ids))
    assert torch.allclose(found, expected)
    alike = divergence(teacher, ids, teacher.gather(-1, ids))
    assert torch.allclose(alike, torch.zeros(3, dtype=torch.float64), atol=1e-9)


def test_a_student_of_the_teachers_shape_is_the_teacher_and_its_file_says_the_same(
    tmp_path: Path,
) -> None:
    from runner.backends.backend import Row
    from runner.backends.llamacpp import load
    from runner.types import LoadPlan, SamplingParams

    shape = shape_of({}, EMBER)
    student = Student(shape, shape.vocabulary, shape.layers, shape.context)
    begin_as(student, shape, EMBER, [], lambda *_: None)
    write_student(student, shape, EMBER, tmp_path / "student.gguf")
    header = read_header(tmp_path / "student.gguf")
    assert header.parameter_count == EMBER.parameter_count
    assert header.chat_template == EMBER.chat_template
    tokens = list(range(100, 120))
    found = []
    for path in (EMBER.path, tmp_path / "student.gguf"):
        model = load(LoadPlan(str(path), "llamacpp", 64, 64, 1), lambda _share: None)
        params = SamplingParams(temperature=0, logprobs=5)
        sampler = model.backend.create_sampler(params)
        (sampled,) = model.backend.step([Row(0, tokens, 0, sampler)])
        found.append(sampled)
        sampler.close()
        model.backend.close()
    own = student.logits(torch.tensor([tokens]), torch.arange(20)[None] == 19).detach()
    own = own.log_softmax(-1)[0]
    for sampled in found:
        for token, nats in sampled.top:
            assert abs(float(own[token]) - nats) < 0.05
