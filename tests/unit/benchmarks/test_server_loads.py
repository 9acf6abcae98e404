"""The loads of the servers that are compared, with servers that answer at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from cli.bench.summary import Percentiles, Summary
from cli.bench.workload import TokenScale, Workload
from tests.benchmarks import server_loads
from tests.benchmarks.server_loads import Bench
from tests.benchmarks.servers import Side


@dataclass
class Loads:
    """What was asked of whom. Each side has the time that its name says for everything."""

    asked: list[tuple[str, Workload]] = field(default_factory=list)

    def load(self, side: Side, work: Workload, scale: TokenScale) -> Summary:
        self.asked.append((side.name, work))
        time_s = {"hearth": 1.0, "llama-server": 2.0, "llama_cpp.server": 4.0}[side.name]
        times = Percentiles(time_s, time_s, time_s, time_s)
        rate = work.clients / time_s
        return Summary(1, 0, 1.0, 1, 0, 1, rate, 1.0, rate, times, times, times, times)

    def sides(self, seed: str) -> list[str]:
        return [side for side, work in self.asked if work.seed.startswith(seed)]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    made = Loads()
    monkeypatch.setattr(server_loads, "load", made.load)
    return made


def _bench(*others: str) -> Bench:
    sides = [Side(name, cast(Any, None), 1, 0.0) for name in ("hearth", *others)]
    return Bench(Path("model"), sides[0], tuple(sides[1:]), TokenScale(), rounds=3)


def test_sides_take_turns_with_new_prompts_in_each_round(loads: Loads) -> None:
    rates, times = server_loads.served_decode(_bench("llama-server"), 16, 128)
    assert (rates.name, rates.ratio, rates.met) == ("decode, 16 clients", 2.0, False)  # 3 wanted
    assert (times.hearth, times.other, times.unit) == (1000.0, 2000.0, "ms")
    pair = ["hearth", "llama-server"]
    assert loads.sides("") == [*pair, *pair[::-1], *pair]
    seeds = [work.seed for _, work in loads.asked]
    assert len(set(seeds)) == 3
    assert seeds[0] == seeds[1]


def test_server_that_answers_one_client_at_a_time_gets_only_the_shared_prompt(loads: Loads) -> None:
    bench = _bench("llama_cpp.server", "llama-server")
    assert len(list(server_loads.served_decode(bench, 4, 128))) == 2
    assert "llama_cpp.server" not in loads.sides("")
    found = list(server_loads.shared_prompt(bench))
    assert [one.other_name for one in found] == ["llama_cpp.server"] * 2 + ["llama-server"] * 2
    assert [one.ratio for one in found] == [4.0, 0.25, 2.0, 0.5]


def test_stream_after_a_long_prompt_asks_for_the_same_prompt_again(loads: Loads) -> None:
    first, after = server_loads.deep_decode(_bench("llama-server"))
    assert (first.rounds, after.rounds) == (1, 3)
    assert (after.hearth, after.other, after.met) == (1.0, 0.5, True)
    assert {(work.seed, work.prompt_tokens) for _, work in loads.asked} == {("deep", 8000)}


def test_repeated_prompt_is_compared_with_its_first_time_and_with_others(loads: Loads) -> None:
    again, beside = server_loads.repeated_prompt(_bench("llama-server"))
    assert (again.other_name, again.ratio, again.met) == ("first time", 1.0, False)
    assert (beside.other_name, beside.ratio, beside.met) == ("llama-server", 0.5, None)
    assert loads.sides("repeated/1") == ["llama-server"] * 2 + ["hearth"] * 2


def test_without_another_server_there_is_nothing_to_compare(loads: Loads) -> None:
    assert list(server_loads.new_prompt(_bench())) == []
