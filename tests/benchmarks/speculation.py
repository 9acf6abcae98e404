"""What drafts bring one stream: python -m tests.benchmarks.speculation MODEL --results FILE

Answers edits, new code, prose and JSON of a schema with the engine in this process, greedily, with
drafts and without, one after the other for each question. --draft names a draft model; then it
answers with that, too. --llama-server names a control, which answers with the same model, without
drafts and with each of --flags. Prints the ratios of the tokens a second after the first one, the
median of each kind and what of the drafts was right. Each answer is a line of JSON in the results:
--minutes ends a run, the next one goes on. Ends with 1 where an answer differs from the one without
drafts, or a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import httpx

from runner.backends.backend import LoadedBackend
from runner.backends.llamacpp import load
from runner.engine.draft_model import DraftModel
from runner.engine.engine import Engine
from runner.engine.grammar import Grammars
from runner.engine.speculation import MAX_TOKENS, Speculation
from runner.types import GenerateRequest, Grammar, LoadPlan, SamplingParams
from tests.benchmarks.speculation_cases import CASES, Case

CONTEXT, MAX_ANSWER = 2048, 192
PLAIN = "without"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one side said to a case, and how long the tokens after the first took."""

    side: str
    case: int
    text: str
    tokens: int
    seconds: float
    proposed: int
    confirmed: int

    @property
    def rate(self) -> float:
        """Tokens a second after the first one."""
        return (self.tokens - 1) / self.seconds


class Hearth:
    """hearth's engine with one way to propose."""

    def __init__(self, model: LoadedBackend, grammars: Grammars, drafts: Speculation | None):
        self._model, self._grammars, self._drafts = model, grammars, drafts

    def answer(self, side: str, number: int, case: Case) -> Answer:
        """In an empty cache."""
        model = self._model
        model.backend.reset()
        engine = Engine(model.backend, model.tokenizer, speculation=self._drafts)
        prompt = f"<|im_start|>user\n{case.question}<|im_end|>\n<|im_start|>assistant\n"
        tokens = model.tokenizer.encode(prompt, add_bos=False, parse_special=True)
        matcher = None
        if case.schema is not None:
            matcher = self._grammars.matcher(Grammar("json_schema", json.dumps(case.schema)))
        sampling = SamplingParams(temperature=0.0)
        request = GenerateRequest(f"{side} {number}", sampling, max_tokens=MAX_ANSWER)
        engine.submit(request, tokens, matcher=matcher)
        text, usage = "", None
        while engine.busy:
            output = engine.step()
            assert not output.errors, output.errors
            for _, delta in output.deltas:
                text += delta.text
                usage = delta.finish.usage if delta.finish is not None else usage
        assert usage is not None
        return Answer(side, number, text, usage.completion_tokens, usage.decode_s,
                      usage.drafted_tokens, usage.confirmed_tokens)  # fmt: skip


@contextmanager
def llama_server(command: list[str], port: int) -> Iterator[httpx.Client]:
    """A control that is ready, with a client of it."""
    process = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            for _ in range(600):
                assert process.poll() is None, f"{shlex.join(command)} ended"
                try:
                    if client.get("/health").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.2)
            yield client
    finally:
        process.terminate()
        process.wait(30)


def of_control(client: httpx.Client, side: str, number: int, case: Case) -> Answer:
    """What llama-server says, by its own account of the time."""
    prompt = f"<|im_start|>user\n{case.question}<|im_end|>\n<|im_start|>assistant\n"
    body: dict[str, Any] = {"prompt": prompt, "n_predict": MAX_ANSWER, "temperature": 0,
                            "cache_prompt": False}  # fmt: skip
    if case.schema is not None:
        body["json_schema"] = case.schema
    answer = client.post("/completion", json=body).raise_for_status().json()
    timings = answer["timings"]
    return Answer(side, number, answer["content"], timings["predicted_n"],
                  timings["predicted_ms"] / 1000, timings.get("draft_n", 0),
                  timings.get("draft_n_accepted", 0))  # fmt: skip


def main() -> int:
    """0 when no answer differs and all targets are met."""
    given = _arguments()
    known = _read(given.results)
    with ExitStack() as opened:
        sides = _sides(given, opened)
        deadline_s = time.monotonic() + given.minutes * 60
        for number, (side, ask) in product(_in_turns(given.kinds.split(",")), sides.items()):
            if (side, number) not in known and time.monotonic() < deadline_s:
                case = CASES[number]
                answer = known[side, number] = ask(side, number, case)
                with given.results.open("a", encoding="utf-8") as results:
                    results.write(json.dumps(asdict(answer)) + "\n")
    return _report(known, list(sides))


def _in_turns(kinds: list[str]) -> list[int]:
    """The numbers of the cases, so that each kind has its turn."""
    by_kind = [[n for n, case in enumerate(CASES) if case.kind == kind] for kind in kinds]
    return [number for row in zip_longest(*by_kind) for number in row if number is not None]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.speculation", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--draft")
    parser.add_argument("--llama-server")
    parser.add_argument("--flags", action="append", default=[])
    parser.add_argument("--kinds", default="edit,code,prose,json")
    parser.add_argument("--minutes", type=float, default=9.0)
    return parser.parse_args()


def _sides(given: argparse.Namespace, opened: ExitStack) -> dict[str, Any]:
    """Who answers, by name."""
    model = _load(given.model, MAX_TOKENS)
    grammars = Grammars(model.tokenizer)
    end = model.tokenizer.is_end
    sides: dict[str, Any] = {
        PLAIN: Hearth(model, grammars, None).answer,
        "lookup": Hearth(model, grammars, Speculation(MAX_TOKENS, None, end)).answer,
    }
    if given.draft:
        draft = DraftModel(_load(given.draft, 0).backend)
        both = Speculation(MAX_TOKENS, draft, end)
        sides["lookup and draft model"] = Hearth(model, grammars, both).answer
    if given.llama_server:
        command = [given.llama_server, "-m", given.model, "-c", str(CONTEXT), "-np", "1",
                   "-t", str(os.cpu_count()), "--host", "127.0.0.1"]  # fmt: skip
        for at, flags in enumerate(["", *given.flags]):
            client = opened.enter_context(
                llama_server([*command, *shlex.split(flags)], 18_400 + at)
            )
            name = f"llama-server {flags}".strip()
            sides[name] = lambda *asked, client=client: of_control(client, *asked)
    return sides


def _load(path: str, draft_tokens: int) -> LoadedBackend:
    plan = LoadPlan(path, "llamacpp", CONTEXT, CONTEXT, 1, draft_tokens=draft_tokens)
    return load(plan, lambda _share: None)


def _read(path: Path) -> dict[tuple[str, int], Answer]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    answers = [Answer(**json.loads(line)) for line in lines]
    return {(answer.side, answer.case): answer for answer in answers}


def _report(known: dict[tuple[str, int], Answer], sides: list[str]) -> int:
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores: {_cpu()}")
    missed = 0
    for kind, least in dict.fromkeys((case.kind, case.least) for case in CASES):
        numbers = [number for number, case in enumerate(CASES) if case.kind == kind]
        for side in sides:
            base = "llama-server" if side.startswith("llama-server") else PLAIN
            pairs = [
                (known[side, number], known[base, number])
                for number in numbers
                if (side, number) in known and (base, number) in known
            ]
            if not pairs:
                continue
            ratios = sorted(one.rate / other.rate for one, other in pairs)
            proposed = sum(one.proposed for one, _ in pairs)
            confirmed = sum(one.confirmed for one, _ in pairs)
            differ = sum(one.text != other.text for one, other in pairs)
            rate = statistics.median(one.rate for one, _ in pairs)
            ratio = statistics.median(ratios)
            ours = side not in (PLAIN, base)
            missed += ours and (ratio < least or differ > 0) and base == PLAIN
            print(
                f"{kind:5} {side}: {len(pairs)} answers, {rate:.1f} tok/s, {ratio:.2f} x"
                f" (from {ratios[0]:.2f} to {ratios[-1]:.2f}; target {least}),"
                f" {confirmed} of {proposed} right, {differ} differ"
            )
    return 1 if missed else 0


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "?")


if __name__ == "__main__":
    raise SystemExit(main())
