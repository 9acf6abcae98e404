"""What the answers to BFCL's cases came to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jsonschema

from tests.conformance.bfcl.asking import MODES, Answer, Answers, Case

SYNTAX = re.compile(r"</?tool_calls?>|</?tools?>|</?function_calls?>")

Judge = Callable[[Sequence[Answer]], Sequence[str]]


def report(cases: Sequence[Case], kept: Mapping[str, Answers], judge: Judge) -> int:
    """Print it; 1 when hearth missed a target."""
    missed = _accuracy(cases, kept, judge)
    hearth = kept["hearth"]
    for mode in MODES:
        given = list(hearth.of(cases, mode))
        wrong = [(each, why) for case, each in given for why in faults(case, each)]
        cut = sum(each.finish == "length" for _, each in given)
        print(f"{mode}: {len(given)} answers, {cut} cut off, {len(wrong)} faults")
        for each, why in wrong[:20]:
            print(f"  {each.id}: {why}\n    {each.calls or each.content!r}")
        missed += len(wrong)
    for mode in ("auto", "required"):
        streams = list(hearth.of(cases, f"{mode}, streamed"))
        other = [
            (whole, stream)
            for case, stream in streams
            if (whole := hearth.get(case, mode)) is not None and not _same(whole, stream)
        ]
        print(f"{mode}: {len(streams)} streams, {len(other)} say something else")
        for whole, stream in other[:5]:
            print(f"  {whole}\n  {stream}")
        missed += len(other)
    return int(missed > 0)


def faults(case: Case, answer: Answer) -> Iterator[str]:
    """What is malformed about the calls, and what tool_choice did not want."""
    if answer.error:
        yield answer.error
        return
    kind = answer.mode.partition(",")[0]
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case.tools}
    calls = answer.calls
    if answer.finish == "length":
        calls = calls[:-1]  # the last one may have been broken off
    elif calls and answer.finish not in ("tool_calls", "stop"):
        yield f"finish_reason is {answer.finish}"
    for name, arguments in calls:
        if name not in schemas:
            yield f"there is no {name}"
            continue
        try:
            value = json.loads(arguments)
        except ValueError as error:
            yield f"arguments: {error}"
            continue
        for found in jsonschema.Draft202012Validator(schemas[name]).iter_errors(value):
            if found.validator != "enum" or _can_match(found.schema):
                yield f"arguments: {found.message}"
    if kind != "none" and (leak := SYNTAX.search(answer.content)):
        yield f"{leak[0]} in the content"
    if kind == "none" and answer.calls:
        yield "a call that was not allowed"
    if kind in ("required", "named") and case.tools and not answer.calls:
        yield "no call"
    if kind == "named" and [name for name, _ in answer.calls] != [case.named] and case.tools:
        yield f"not one call of {case.named}"


def _can_match(schema: Mapping[str, Any]) -> bool:
    """Whether a word of an enum has the type: some of BFCL's functions have integers that are one
    of "1", "2"."""
    typed = jsonschema.Draft202012Validator({"type": schema.get("type", [])})
    return "type" not in schema or any(map(typed.is_valid, schema["enum"]))


def _same(whole: Answer, stream: Answer) -> bool:
    """Whether both say the same."""
    return [list(call) for call in whole.calls] == [list(call) for call in stream.calls] and (
        whole.content,
        whole.finish,
    ) == (stream.content, stream.finish)


def _accuracy(cases: Sequence[Case], kept: Mapping[str, Answers], judge: Judge) -> int:
    """Print a table of the cases that both sides have answered; 1 when hearth is below."""
    shown = {
        side: answers
        for side, answers in kept.items()
        if any(True for _ in answers.of(cases, "auto"))
    }
    both = [
        case for case in cases if all(each.get(case, "auto") is not None for each in shown.values())
    ]
    right: dict[str, dict[str, bool]] = {}
    for side, answers in shown.items():
        given = [answer for _, answer in answers.of(both, "auto")]
        right[side] = {each.id: not wrong for each, wrong in zip(given, judge(given), strict=True)}
    print("| category | cases |", " | ".join(right), "|")
    print("| --- | ---: |", " | ".join("---:" for _ in right), "|")
    rows = {name: [each for each in both if each.category == name] for name in _categories(both)}
    for name, given in {**rows, "all": both}.items():
        shares = [sum(found[each.id] for each in given) for found in right.values()]
        print(f"| {name} | {len(given)} |", " | ".join(map(str, shares)), "|")
    totals = {side: sum(found.values()) for side, found in right.items()}
    return int(totals.get("hearth", 0) < totals.get("llama-server", 0))


def _categories(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(case.category for case in cases))
