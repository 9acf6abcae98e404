"""`prompt` of Responses: instructions that stand in a file of the config folder.

prompts/ID.md is the prompt, prompts/ID@VERSION.md one of its versions. The whole file is text, in
which {{name}} is a variable. OpenAI's own are made on its web page; no API makes them.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from runner.errors import Conflict, InvalidRequest
from runner.owned_file import read_owned
from runner.server.errors import HttpError
from runner.server.request_body import MAX_BODY_BYTES, WireModel

FOLDER: Final = "prompts"
MAX_PROMPT_BYTES: Final = 256 << 10
_PARAM: Final = "prompt"
_NAME: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"
_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*\}\}")


class PromptText(WireModel):
    """A variable in OpenAI's other form."""

    type: Literal["input_text"]
    text: str


class PromptReference(WireModel):
    """A stored prompt and the values of its variables, which are texts."""

    id: str = Field(pattern=_NAME)
    version: str | None = Field(None, pattern=_NAME)
    variables: dict[str, str | PromptText] | None = None


async def prompt_instructions(folder: Path, prompt: PromptReference) -> str:
    """The text of a prompt. folder: of the configuration. Raises HttpError 404 for one that is not
    there, InvalidRequest for variables that it lacks or does not have, Conflict for an unsafe
    file."""
    name = prompt.id if prompt.version is None else f"{prompt.id}@{prompt.version}"
    path = folder / FOLDER / f"{name}.md"
    data = await asyncio.to_thread(read_owned, path, MAX_PROMPT_BYTES)
    if data is None:
        raise HttpError(
            404,
            "prompt_not_found",
            f"no stored prompt {name!r}: no file prompts/{name}.md beside mcp.json",
        )
    try:
        return _filled(data.decode().strip(), _texts(prompt))
    except UnicodeDecodeError:
        raise Conflict(f"{path} is not UTF-8") from None


def _texts(prompt: PromptReference) -> dict[str, str]:
    given = prompt.variables or {}
    return {name: x if isinstance(x, str) else x.text for name, x in given.items()}


def _filled(text: str, variables: dict[str, str]) -> str:
    """The text with its variables, which are not looked into for others."""
    names = _VARIABLE.findall(text)
    for what, found in (
        ("needs the variables", sorted(set(names) - variables.keys())),
        ("does not have the variables", sorted(variables.keys() - set(names))),
    ):
        if found:
            listed = ", ".join(name[:64] for name in found[:8])
            raise InvalidRequest(f"the stored prompt {what} {listed}", param=f"{_PARAM}.variables")
    if sum(len(variables[name]) for name in names) > MAX_BODY_BYTES:
        raise InvalidRequest(
            f"the stored prompt with its variables is longer than {MAX_BODY_BYTES >> 20} MiB",
            param=f"{_PARAM}.variables",
        )
    return _VARIABLE.sub(lambda found: variables[found[1]], text)
