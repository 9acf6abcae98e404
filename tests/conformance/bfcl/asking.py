"""Asks a server the cases of BFCL, in every mode, and keeps each answer as soon as it is there."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import openai

MAX_TOKENS, MAX_TOKENS_WITHOUT_CALLS = 512, 64
MODES = ("auto", "auto, streamed", "required", "required, streamed", "named", "none")
"""What tool_choice is, and how the answer comes."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question with the functions that are offered."""

    id: str
    category: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]

    @property
    def named(self) -> str:
        """The function that tool_choice names: any of them."""
        names = [tool["function"]["name"] for tool in self.tools]
        return Random(self.id).choice(names) if names else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. calls: names and arguments. error: of a request that was refused."""

    id: str
    mode: str
    calls: Sequence[Sequence[str]] = ()
    content: str = ""
    finish: str = ""
    error: str = ""
    prompt_tokens: int = 0
    answer_tokens: int = 0


class Answers:
    """Those of one server, kept in a file of lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        given = (Answer(**json.loads(line)) for line in lines)
        self._by_question = {(each.id, each.mode): each for each in given}

    def add(self, answer: Answer) -> None:
        """Keep one."""
        with self._lock:
            self._by_question[answer.id, answer.mode] = answer
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(answer)) + "\n")

    def get(self, case: Case, mode: str) -> Answer | None:
        """The answer to a case, if it is there."""
        return self._by_question.get((case.id, mode))

    def of(self, cases: Iterable[Case], mode: str) -> Iterator[tuple[Case, Answer]]:
        """The cases that were answered in this mode."""
        for case in cases:
            answer = self.get(case, mode)
            if answer is not None:
                yield case, answer


def ask_all(
    client: openai.OpenAI,
    cases: Sequence[Case],
    modes: Sequence[str],
    answers: Answers,
    *,
    clients: int,
    until_s: float,
) -> None:
    """Ask what has no answer yet, many at once, and stop before a case when time.monotonic() is
    past until_s."""

    def work(case: Case) -> None:
        for mode in modes:
            if time.monotonic() < until_s and answers.get(case, mode) is None:
                answers.add(ask(client, case, mode))

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, cases))


def ask(client: openai.OpenAI, case: Case, mode: str) -> Answer:
    """One answer. A refusal is one, and a server that does not answer raises."""
    kind, _, streamed = mode.partition(", ")
    choice: Any = kind
    if kind == "named":
        choice = {"type": "function", "function": {"name": case.named}}
    asked: dict[str, Any] = {
        "model": "bench",
        "messages": case.messages,
        "temperature": 0,
        "max_tokens": MAX_TOKENS_WITHOUT_CALLS if kind == "none" else MAX_TOKENS,
    }
    if case.tools:
        asked |= {"tools": case.tools, "tool_choice": choice}
    try:
        if streamed:
            return _streamed(client, asked, case.id, mode)
        answer = client.chat.completions.create(**asked)
    except openai.APIStatusError as error:
        return Answer(case.id, mode, error=f"{error.status_code} {error.message}")
    (choice,) = answer.choices
    calls = [
        (each.function.name, each.function.arguments) for each in choice.message.tool_calls or ()
    ]
    usage = answer.usage
    return Answer(
        case.id,
        mode,
        calls,
        choice.message.content or "",
        choice.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        answer_tokens=usage.completion_tokens,
    )


def _streamed(client: openai.OpenAI, asked: Mapping[str, Any], id_: str, mode: str) -> Answer:
    calls: list[list[str]] = []
    content, finish = "", ""
    for chunk in client.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or ():
                if delta.index == len(calls):
                    calls.append(["", ""])
                calls[delta.index][0] += delta.function.name or ""
                calls[delta.index][1] += delta.function.arguments or ""
    return Answer(id_, mode, calls, content, finish)
