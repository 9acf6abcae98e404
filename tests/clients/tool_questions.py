"""Asks ember questions that want tools through the OpenAI SDK, and counts the valid calls.

The questions are the evaluation's: a hash kept them out of the training. A valid call is JSON,
names an offered function and fits its schema; a right one is also the one that was wanted.

python -m tests.clients.tool_questions [--questions 200] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import openai

from tests.conftest import running_daemon
from tests.ember.exchange import Call, Conversation
from tests.ember.grading import callable_with
from tests.ember.skills.tool_use import call_conversation

CLIENTS = 8
MAX_TOKENS = 220
TARGETS = {
    "auto": (0.95, 0.95),
    "auto, streamed": (0.95, 0.95),
    "auto, strict": (0.95, 0.95),
    "required": (1.0, 0.95),
}
"""Shares of valid and of right answers. strict: of the functions."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer: all its calls are valid; they are the wanted ones."""

    question: str
    got: str
    valid: bool
    right: bool


def main() -> int:
    """Ask them in each mode; 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.tool_questions")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failures", type=int, default=3, help="wrong answers to print per mode")
    given = parser.parse_args()
    rng = Random(f"tool questions {given.seed}")
    asked = [call_conversation(rng, "eval") for _ in range(given.questions)]
    with (
        tempfile.TemporaryDirectory(prefix="hearth-tools-") as home,
        running_daemon(Path(home)) as daemon,
        openai.OpenAI(
            base_url=f"{daemon.url}/v1", api_key="none", _strict_response_validation=True
        ) as client,
    ):
        met = [_met(client, mode, asked, given.failures) for mode in TARGETS]
    return 0 if all(met) else 1


def _met(client: openai.OpenAI, mode: str, asked: Sequence[Conversation], shown: int) -> bool:
    """Ask all in one mode, print the shares, and say whether they reach the targets."""
    started_s = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        outcomes = list(pool.map(lambda each: outcome(client, mode, each), asked))
    valid, right = (
        sum(getattr(each, name) for each in outcomes) / len(outcomes) for name in ("valid", "right")
    )
    valid_target, right_target = TARGETS[mode]
    print(
        f"{mode}: {len(outcomes)} questions, valid {valid:.1%} (target {valid_target:.0%}), right"
        f" function and arguments {right:.1%} (target {right_target:.0%}),"
        f" {time.perf_counter() - started_s:.0f} s"
    )
    for each in [each for each in outcomes if not each.right][:shown]:
        print(f"  {each.question!r}\n    got {each.got}")
    return valid >= valid_target and right >= right_target


def outcome(client: openai.OpenAI, mode: str, wanted: Conversation) -> Outcome:
    """Ask one question and judge its calls."""
    kind, *more = mode.split(", ")
    strict = {"strict": True} if "strict" in more else {}
    given: dict[str, Any] = {
        "model": "ember",
        "messages": [turn.message() for turn in wanted.turns[:-1]],
        "tools": [
            {"type": "function", "function": {**tool["function"], **strict}}
            for tool in wanted.tools
        ],
        "tool_choice": kind,
        "temperature": 0,
        "max_completion_tokens": MAX_TOKENS,
    }
    if "streamed" in more:
        with client.chat.completions.stream(**given) as stream:
            message = stream.get_final_completion().choices[0].message
    else:
        message = client.chat.completions.create(**given).choices[0].message
    functions = [call.function for call in message.tool_calls or ()]
    calls = [call for call in map(_call, functions) if call is not None]
    valid = (
        bool(functions)
        and len(calls) == len(functions)
        and all(callable_with(call, wanted.tools) for call in calls)
    )
    right = valid and Counter(map(_key, calls)) == Counter(map(_key, wanted.calls))
    got = [(one.name, one.arguments) for one in functions] or message.content
    return Outcome(wanted.turns[-2].content, str(got), valid, right)


def _call(function: Any) -> Call | None:
    """The call, or None when its arguments are not a JSON object."""
    try:
        arguments = json.loads(function.arguments)
    except ValueError:
        return None
    return Call(function.name, arguments) if isinstance(arguments, dict) else None


def _key(call: Call) -> str:
    return json.dumps([call.name, call.arguments], sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
