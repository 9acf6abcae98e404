"""Layers with an attention window hold little more than that, and every answer stays the same."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from registry.formats.gguf import read_header
from runner.backends.backend import Backend, BackendError, LoadedBackend, Row
from runner.backends.llamacpp import load
from runner.engine.engine import Engine
from runner.engine.pool_growth import PoolGrowth
from runner.engine.scheduler import STATE_END_TOKENS
from runner.engine.speculation import Speculation
from runner.models.attention_window import attention_window
from runner.models.load_request import LoadRequest
from runner.models.memory_plan import MemoryBudget, plan_memory
from runner.models.model_files import ModelFiles
from runner.models.model_shape import ModelShape
from runner.types import GenerateRequest, SamplingParams

WINDOW = 32
MODEL = {"architecture": "gemma3", "sliding_window": WINDOW, "context_length": 4096}
TOKENS = [1, *Random(3).choices(range(5, 250), k=2000)]

Open = Callable[..., LoadedBackend]


def open_window(open_model: Open, *, small: bool = True, **fields: int) -> LoadedBackend:
    plan = {"pool_tokens": 4096, "context_length": 2048, "max_sequences": 10, **fields}
    return open_model(MODEL, window_cache=small, batch_tokens=64, **plan)


@dataclass
class Run:
    """An engine with what it has answered: the tokens, and how many of each prompt it had."""

    engine: Engine
    answers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    drafted: int = 0
    confirmed: int = 0

    def submit(
        self, id: str, tokens: Sequence[int], answer_tokens: int = 12, **fields: object
    ) -> None:
        sampling = fields.pop("sampling", SamplingParams(temperature=0))
        request = GenerateRequest(
            id,
            sampling,
            max_tokens=answer_tokens,
            ignore_eos=True,
            return_tokens=True,
            **fields,  # type: ignore[arg-type]
        )
        self.engine.submit(request, tokens)

    def step(self) -> None:
        output = self.engine.step()
        assert not output.errors
        for id, delta in output.deltas:
            if delta.finish is not None:
                self.answers[id] = delta.finish.tokens
                usage = delta.finish.usage
                self.cached[id] = usage.cached_tokens
                self.drafted += usage.drafted_tokens
                self.confirmed += usage.confirmed_tokens

    def ask(self, tokens: Sequence[int], answer_tokens: int = 12) -> tuple[tuple[int, ...], int]:
        """The tokens of prompt and answer, and how many of the prompt were not computed."""
        self.submit("a", tokens, answer_tokens)
        self.drain()
        return self.answers["a"], self.cached["a"]

    def drain(self) -> None:
        while self.engine.busy:
            self.step()


def start(
    open_model: Open, *, small: bool = True, swap_bytes: int = 0, draft: bool = False, **fields: int
) -> Run:
    loaded = open_window(open_model, small=small, draft_tokens=8 if draft else 0, **fields)
    engine = Engine(
        loaded.backend,
        loaded.tokenizer,
        idle_tokens=64 if swap_bytes else None,
        swap_bytes=swap_bytes,
        speculation=Speculation(8, None, loaded.tokenizer.is_end) if draft else None,
    )
    if "max_pool_tokens" in fields:
        limit = fields["max_pool_tokens"]
        engine.scheduler.cache.growth = PoolGrowth(loaded.backend, limit, lambda tokens: tokens)
    return Run(engine)


def fill(backend: Backend, sequence: int, tokens: Sequence[int]) -> None:
    for start in range(0, len(tokens), 64):
        backend.step([Row(sequence, tokens[start : start + 64], start)])


def go_on(backend: Backend, sequence: int, position: int, count: int = 40) -> list[int]:
    sampler, token, found = backend.create_sampler(SamplingParams(temperature=0)), 77, []
    for at in range(count):
        (sampled,) = backend.step([Row(sequence, [token], position + at, sampler)])
        found.append(token := sampled.token)
    sampler.close()
    return found


def test_a_sequence_is_cut_only_while_its_window_is_there(open_model: Open) -> None:
    backend, whole = (open_window(open_model, small=small).backend for small in (True, False))
    fill(backend, 0, TOKENS[:1000])
    fill(whole, 0, TOKENS[:1000])
    least = backend.min_share(0)
    assert WINDOW < least <= 1000 - 64 + 1, "what the last batch saw is still there"
    assert whole.min_share(0) == 0
    with pytest.raises(BackendError, match="cannot share"):
        backend.share(0, 1, least - 1)
    assert not backend.trim(0, least - 1)
    for each in (backend, whole):
        each.share(0, 1, least)
    assert go_on(backend, 1, least) == go_on(whole, 1, least)
    assert go_on(backend, 0, 1000) == go_on(whole, 0, 1000)


def test_sequences_that_share_take_no_window_from_each_other(open_model: Open) -> None:
    backend, whole = (open_window(open_model, small=small).backend for small in (True, False))
    for each in (backend, whole):
        fill(each, 0, TOKENS[:640])
        for target in range(1, 10):
            each.share(0, target, 640)
        for at in range(640, 1640, 64):  # more than the cache of the window holds
            each.step([Row(0, TOKENS[at : at + 64], at)])
    expected = [go_on(whole, sequence, 640) for sequence in range(1, 10)]
    assert [go_on(backend, sequence, 640) for sequence in range(1, 10)] == expected


def long_prompts(run: Run) -> None:
    run.submit("long", TOKENS[:1500], 60)
    run.submit("other", TOKENS[500:1300], 40, sampling=SamplingParams(seed=3))
    run.drain()


def two_turns(run: Run) -> None:
    for first in (0, 900):
        run.submit(f"first {first}", TOKENS[first : first + 700], 50)
        run.drain()
    for first in (0, 900):
        said = [*run.answers[f"first {first}"], 7, 8, 9]
        run.submit(f"second {first}", said, 50)
        run.drain()
        run.submit(f"rewritten {first}", [*said[:-30], 7, 8, 9], 50)
        run.drain()


def many_requests(run: Run) -> None:
    """Some share a beginning, some are cancelled, all have seeds of their own."""
    random = Random(5)
    for number in range(40):
        first = random.choice((0, 300))
        head, tail = (
            TOKENS[first : first + random.randrange(1, 500)],
            random.choices(range(5, 250), k=9),
        )
        params = SamplingParams(seed=number, temperature=random.choice((0.0, 1.0)))
        run.submit(f"{number}", [*head, *tail], random.randrange(1, 60), sampling=params)
        for _ in range(random.randrange(4)):
            run.step()
        if number % 7 == 3:
            run.engine.cancel(f"{number}")
    run.drain()


def a_full_context(run: Run) -> None:
    run.submit("shifted", TOKENS[:1900], 300, n_keep=50)
    run.drain()
    assert len(run.answers["shifted"]) < 1900, "a part of the prompt has left the context"


def test_windows_that_were_shared_are_separate_once_the_cache_has_grown(open_model: Open) -> None:
    backend, whole = (
        open_window(open_model, small=small, pool_tokens=448, max_pool_tokens=4096).backend
        for small in (True, False)
    )
    expected = []
    for each in (backend, whole):
        fill(each, 0, TOKENS[:440])
        for target in range(1, 10):  # more than the cache has room for, so that they share
            each.share(0, target, 440)
        each.grow(4096)
        expected.append([go_on(each, sequence, 440, 60) for sequence in range(10)])
    assert expected[0] == expected[1]


SCENARIOS = (long_prompts, two_turns, many_requests, a_full_context)
WAYS: tuple[dict[str, int], ...] = (
    {},
    {"swap_bytes": 1 << 30},
    {"draft": True, "swap_bytes": 1 << 30},
    {"pool_tokens": 512, "max_pool_tokens": 4096},
)


@pytest.mark.parametrize("fields", WAYS, ids=lambda fields: " ".join(fields) or "pool")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_are_those_of_layers_that_hold_everything(
    open_model: Open, scenario: Callable[[Run], None], fields: dict[str, int]
) -> None:
    runs = [start(open_model, small=small, **fields) for small in (True, False)]
    for run in runs:
        scenario(run)
    assert runs[0].answers == runs[1].answers != {}
    if "draft" in fields:
        assert 0 < runs[0].confirmed < runs[0].drafted


@pytest.mark.parametrize("swap_bytes", [0, 1 << 30])
def test_a_second_turn_goes_on_where_the_first_ended(open_model: Open, swap_bytes: int) -> None:
    run, alone = (start(open_model, swap_bytes=swap_bytes) for _ in range(2))
    said = run.ask(TOKENS[:900], 60)[0]
    for first in (1000, 1200, 1400):  # what the first layers had of it is overwritten
        run.ask(TOKENS[first : first + 500])
    answer, cached = run.ask([*said, 7, 8, 9])
    assert cached == len(said) - 1, "the last token of an answer is not computed"
    assert answer == alone.ask([*said, 7, 8, 9])[0]
    rewritten = [*said[:-50], 7, 8, 9]
    answer, cached = run.ask(rewritten)
    assert cached == 900 - STATE_END_TOKENS
    assert answer == alone.ask(rewritten)[0]


def test_clients_share_the_beginning_of_their_prompts(open_model: Open) -> None:
    run = start(open_model, swap_bytes=1 << 30)
    prompts = [[*TOKENS[:600], *(10 + number for _ in range(300))] for number in range(4)]
    found = [run.ask(prompt)[1] for prompt in prompts]
    assert found == [0, 0, 600, 600], "the second one shows where prompts part"
    public = [[*TOKENS[:500], *(20 + number for _ in range(300))] for number in range(2)]
    for number, prompt in enumerate(public):
        run.submit(f"{number}", prompt, cache_salt=f"{number}", public_tokens=500)
        run.drain()
    assert run.cached == {"a": 600, "0": 0, "1": 500}


def test_requests_wait_for_a_prompt_that_another_computes(open_model: Open) -> None:
    run = start(open_model)
    for number in range(4):
        run.submit(f"{number}", TOKENS[:1000], sampling=SamplingParams(seed=number))
    run.drain()
    assert sorted(run.cached.values()) == [0, 999, 999, 999]


def test_copies_go_to_another_worker_and_back(open_model: Open) -> None:
    """Saved prompts are such copies, whichever size of cache has made them."""
    for one, other in ((True, True), (True, False), (False, True)):
        backend, later = (open_window(open_model, small=small).backend for small in (one, other))
        fill(backend, 0, TOKENS[:1000])
        state = backend.save(0)
        assert hasattr(state, "parts")
        later.load(later.join_parts(state.parts(), 1000), 3)
        assert later.min_share(3) == 1000 - 1, "a copy has the window only"
        assert go_on(later, 3, 1000) == go_on(backend, 0, 1000)


@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
def test_the_memory_plan_counts_what_llama_cpp_allocates(
    model_file: Callable[..., Path], caplog: pytest.LogCaptureFixture, cache_type: str
) -> None:
    path = model_file(**{**MODEL, "width": 128, "blocks": 4})
    window, layers = attention_window(read_header(path))
    assert (window, layers) == (WINDOW, (True, False, True, False))
    shape = ModelShape(
        *(path.stat().st_size, 4096, 270, 128, 256, 4, (2,) * 4, 32, 32),
        window=window,
        window_layers=layers,
    )
    request = LoadRequest(num_ctx=2048, num_parallel=8, num_batch=128, kv_cache_type=cache_type)
    made = plan_memory(ModelFiles(str(path), "llamacpp"), shape, request, MemoryBudget(8 << 30))
    load_plan, caches = made.load_plan, []
    assert load_plan.window_cache
    with caplog.at_level(logging.DEBUG, "runner.backends.llamacpp.native"):
        load(replace(load_plan, threads=1), lambda _: None).backend.close()
    for line in caplog.messages:
        if found := re.search(r"size = +([\d.]+) MiB \( *(\d+) cells, +2 layers", line):
            caches.append((float(found[1]), int(found[2])))
    assert [cells for _, cells in caches] == [load_plan.pool_tokens, made.cache.window_cells]
    assert made.estimate.cache_bytes / (1 << 20) == pytest.approx(
        sum(size for size, _ in caches), abs=0.01
    )
