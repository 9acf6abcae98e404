"""What a student is before it has learned: layers of its teacher, cut to its size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from registry.formats.gguf.reader import read_header  # noqa: E402
from runner.backends.torch.tokenizer import read_vocabulary  # noqa: E402
from runner.jobs.distillation.beginning import begin_as, begins_as  # noqa: E402
from runner.jobs.distillation.network import Student  # noqa: E402
from runner.jobs.distillation.student import Shape, shape_of  # noqa: E402

EMBER = read_header(Path(__file__).parents[5] / "registry/builtin/ember/ember.gguf")
TEXT = (
    "<|im_start|>user\nHow many days are there in {} weeks?<|im_end|>\n<|im_start|>assistant\n"
    "{} weeks have {} days.<|im_end|>\n<|im_start|>user\nWhat is {} plus {}?<|im_end|>\n"
    "<|im_start|>assistant\n{} + {} = {}<|im_end|>\n"
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other take longer with so little to do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def documents(numbers: range) -> list[Any]:
    """Conversations as tokens."""
    tokenizer = read_vocabulary(EMBER.path).tokenizer
    texts = [TEXT.format(n, n, 7 * n, n, 3 * n, n, 3 * n, 4 * n) for n in numbers]
    return [torch.tensor(tokenizer.encode(t, add_bos=False, parse_special=True)) for t in texts]


def begun(sample: list[Any], **config: int) -> Any:
    """A student of ember."""
    shape = shape_of(config, EMBER)
    assert begins_as(shape, EMBER)
    torch.manual_seed(1)
    student = Student(shape, shape.vocabulary, shape.layers, shape.context)
    told: list[tuple[int, int]] = []
    begin_as(student, shape, EMBER, sample, lambda done, of: told.append((done, of)))
    assert told[-1] == (6, 6)
    return student


def apart(student: Any, teacher: Any, texts: list[Any]) -> float:
    """The mean divergence from the teacher in nats."""
    found = []
    with torch.no_grad():
        for tokens in texts:
            every = torch.ones(1, len(tokens), dtype=torch.bool)
            of, own = (
                net.logits(tokens[None], every).log_softmax(-1) for net in (teacher, student)
            )
            found.append((of.exp() * (of - own)).sum(-1).mean())
    return float(torch.stack(found).mean())


def test_what_is_cut_off_is_made_up_for_on_texts_like_the_sample() -> None:
    sample, others = documents(range(2, 22)), documents(range(22, 28))
    teacher = begun([])
    near = apart(begun(sample, intermediate_size=384), teacher, others)
    # Tokens at random teach as little of these texts as the weights alone do
    tokens = [torch.randint(300, 4000, (len(each),)) for each in sample]
    far = apart(begun(tokens, intermediate_size=384), teacher, others)
    assert near < 0.1
    assert near < far / 10


def test_layers_are_spaced_evenly_and_whole_where_the_feed_forward_is_not_cut() -> None:
    student, teacher = begun([], num_hidden_layers=3), begun([])
    for block, number in zip(student.blocks, (0, 2, 5), strict=True):
        for mine, theirs in zip(
            block.parameters(), teacher.blocks[number].parameters(), strict=True
        ):
            assert torch.equal(mine, theirs)


def test_half_of_ember_has_its_layers() -> None:
    shape = shape_of({"intermediate_size": 128}, EMBER)
    assert 0.48 < shape.parameters / EMBER.parameter_count < 0.5
    assert begins_as(shape, EMBER)


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": 128},
        {"num_attention_heads": 8, "num_key_value_heads": 2},
        {"num_hidden_layers": 7},
        {"intermediate_size": 1024},
    ],
)
def test_a_student_that_has_no_place_in_its_teacher_begins_anew(config: dict[str, int]) -> None:
    assert not begins_as(shape_of(config, EMBER), EMBER)


def test_a_teacher_of_another_kind_or_with_other_heads_gives_no_layers() -> None:
    shape: Shape = shape_of({}, EMBER)
    for key, value in (("general.architecture", "qwen2"), ("llama.attention.key_length", 32)):
        assert not begins_as(shape, replace(EMBER, metadata={**EMBER.metadata, key: value}))
