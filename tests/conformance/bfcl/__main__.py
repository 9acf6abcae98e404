"""Tool calls of the Berkeley Function Calling Leaderboard, v4, its single-turn categories: hearth,
and llama-server beside it on the same file.

python -m tests.conformance.bfcl ORACLE MODEL [...]: ORACLE is the Python of an environment with
requirements.txt, MODEL a GGUF file. Each answer is kept under --out as soon as it is there, and
what is there is not asked again: the run may stop at any time, by --minutes as well.

Whether an answer is right says BFCL's own checker; what is counted here beside it is the form of
the calls, what tool_choice wants, and that a stream says what a whole answer says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import openai

from tests.benchmarks import servers
from tests.conformance.bfcl.asking import MODES, Answer, Answers, Case, ask_all
from tests.conformance.bfcl.report import report
from tests.real import models

ORACLE = Path(__file__).with_name("oracle.py")
SIDES = {"hearth": MODES, "llama-server": ("auto",)}
CLIENTS = 8


def main() -> int:
    """Ask, and say what it came to; 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.bfcl")
    parser.add_argument("oracle", type=Path)
    parser.add_argument("model", type=models.given, help="of tests.real.models, or a path")
    parser.add_argument("--llama-server", type=Path, help="the control")
    parser.add_argument("--sides", nargs="*", choices=[*SIDES, []], default=[*SIDES])
    parser.add_argument("--modes", nargs="*", choices=[*MODES, []], default=[*MODES])
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--minutes", type=float, default=1e6, help="per side")
    parser.add_argument("--out", type=Path, default=servers.ROOT / "build" / "bfcl")
    given = parser.parse_args()
    cases = _cases(given.oracle, given.seed)[: given.count]
    folder = given.out / f"{given.model.stem}-{given.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    kept = {side: Answers(folder / f"{side}.jsonl") for side in SIDES}
    for side in given.sides:
        modes = [mode for mode in SIDES[side] if mode in given.modes]
        if side == "llama-server" and given.llama_server is None:
            print("llama-server: not asked, --llama-server does not name it")
        elif any(kept[side].get(case, mode) is None for case in cases for mode in modes):
            until_s = time.monotonic() + given.minutes * 60
            with _serving(side, given.model, given.llama_server, folder) as client:
                ask_all(client, cases, modes, kept[side], clients=CLIENTS, until_s=until_s)
    return report(cases, kept, lambda answers: _verdicts(given.oracle, answers))


def _cases(oracle: Path, seed: str) -> list[Case]:
    command = [str(oracle), str(ORACLE), "cases", seed]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Case(**json.loads(line)) for line in done.stdout.splitlines()]


def _verdicts(oracle: Path, answers: Sequence[Answer]) -> list[str]:
    """What is wrong with each answer; an empty text: nothing."""
    lines = [json.dumps({"id": each.id, "calls": each.calls}) for each in answers]
    command = [str(oracle), str(ORACLE), "judge"]
    done = subprocess.run(
        command, input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return ["" if each["valid"] else each["error"] or "wrong" for each in found]


@contextmanager
def _serving(side: str, model: Path, llama_server: Path, logs: Path) -> Iterator[openai.OpenAI]:
    port = servers.free_port()
    with tempfile.TemporaryDirectory(prefix="hearth-bfcl-") as scratch:
        home = Path(scratch)
        command = (
            servers.hearth(home, port)
            if side == "hearth"
            else servers.llama_server(llama_server, model, port)
        )
        with servers.running(command, logs):
            if side == "hearth":
                servers.install_model(model, home, port)
            url = f"http://127.0.0.1:{port}/v1"
            with openai.OpenAI(base_url=url, api_key="none", timeout=1800, max_retries=0) as client:
                yield client


if __name__ == "__main__":
    sys.exit(main())
