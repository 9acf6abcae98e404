"""Templates in Go: as Go and Ollama render them.

golden.jsonl holds what Go 1.27 itself gave; gotemplate/record.go records it again. The shared
vectors are chat templates of Ollama's library.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget
from modelfile.templates.dialect import GO, engine_of
from modelfile.templates.gochat import GoChatTemplate
from modelfile.templates.gotemplate import ollama
from modelfile.templates.gotemplate.template import GoTemplate
from modelfile.templates.gotemplate.values import from_json
from tests.conformance.vectors import rows

VECTORS = [
    pytest.param(row, id=f"{row['template']}-{number}")
    for number, row in enumerate(rows("gotemplate.jsonl"))
] or [pytest.param(None, marks=pytest.mark.skip("no shared vectors here"))]
_SHARED, *GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parent / "gotemplate" / "golden.jsonl")
    .read_text(encoding="utf-8")
    .rstrip("\n")
    .split("\n")
]
FUNCTIONS = {"json": ollama.FUNCTIONS["json"]}


@pytest.mark.parametrize("row", VECTORS)
def test_a_chat_template_renders_as_in_ollama(row: dict[str, Any]) -> None:
    assert engine_of(row["source"]) == GO
    given = GoChatTemplate(row["source"]).render(row["messages"])
    if row["ignore_one_trailing_space"]:
        given, row["expected"] = (text.removesuffix(" ") for text in (given, row["expected"]))
    assert given == row["expected"]


@cache
def _chat_data() -> dict[str, Any]:
    """What Ollama's template gets for the shared messages, two pairs of which are one."""
    messages = [ollama.message(item["role"], item["content"], item) for item in _SHARED["messages"]]
    collated: list[ollama.ApiMessage] = []
    for message in messages:
        last = collated[-1].fields if collated else {"Role": "tool"}
        if last["Role"] == message.fields["Role"] != "tool":
            last["Content"] += "\n\n" + message.fields["Content"]
        else:
            collated.append(message)
    return {
        "System": collated[0].fields["Content"],
        "Messages": ollama.ApiMessages(collated),
        "Tools": ollama.tools(_SHARED["tools"]),
        "Response": "",
        "Think": False,
        "ThinkLevel": "",
        "IsThinkSet": False,
    }


def _render(row: dict[str, Any]) -> str:
    data = _chat_data() if row.get("chat") else from_json(_SHARED["data"])
    return GoTemplate(row["template"], FUNCTIONS).render(data, Budget())


def _lines(text: str) -> str:
    """Names of the recorder's types as they are in Ollama."""
    for ours, theirs in (
        ("template.templateMessage", "main.message"),
        ("template.templateToolFunction", "main.function"),
        ("template.templateTools", "main.tools"),
    ):
        text = text.replace(theirs, ours)
    return text


@pytest.mark.parametrize("start", range(0, len(GOLDEN), 100))
def test_go_itself_gave_the_same(start: int) -> None:
    for row in GOLDEN[start : start + 100]:
        if "expected" in row:
            assert _render(row) == row["expected"], row["template"]
            continue
        with pytest.raises(TemplateError) as caught:
            _render(row)
        told = _lines(row["error"]).partition("template: :")[2].split(": ", 1)[1]
        if "executing" in told:
            told = told.split(">: ", 1)[1] if ">: " in told else told
        if not told.startswith(('unexpected "', "executing")):
            assert caught.value.message.endswith(told[-280:]), row["template"]


def test_the_golden_file_covers_values_and_errors() -> None:
    assert sum("expected" in row for row in GOLDEN) > 400
    assert sum("error" in row for row in GOLDEN) > 500
