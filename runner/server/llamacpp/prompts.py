"""The prompts of llama-server's own routes: texts, tokens, both in one, and objects with a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import InvalidRequest, Unsupported
from runner.models.lease import Lease
from runner.server.request_body import WireModel


class ContentText(WireModel):
    """A part of an object's content."""

    type: str
    text: str | None = None


class PromptObject(WireModel):
    """A prompt with places for media; only its text is used."""

    prompt_string: str | None = None
    content: list[ContentText] | None = None
    multimodal_data: Any = None

    def text(self) -> str:
        """Its text. Raises Unsupported for media, InvalidRequest."""
        if self.multimodal_data:
            raise Unsupported(
                "multimodal_data is not supported: send images in the messages of"
                " /v1/chat/completions",
                param="prompt",
            )
        if self.prompt_string is not None:
            return self.prompt_string
        if self.content is None:
            raise InvalidRequest("a prompt object needs prompt_string or content", param="prompt")
        for part in self.content:
            if part.type != "text" or part.text is None:
                raise Unsupported(
                    f"content of type {part.type[:40]!r} is not supported; send text",
                    param="prompt",
                )
        return "".join(part.text or "" for part in self.content)


MixedPrompt = list[str | int]
GivenPrompt = (
    str | PromptObject | list[str | int | PromptObject | list[str | int]]
)  # one, or several


@dataclass(frozen=True, slots=True)
class Prompt:
    """Texts and tokens, in order: they are one."""

    parts: tuple[str | int, ...]

    @property
    def text(self) -> str | None:
        """It where it is a text by itself."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], str) else None

    async def tokens(self, lease: Lease) -> tuple[int, ...]:
        """It as tokens; only a text at the beginning gets the token of the beginning."""
        found: list[int] = []
        for at, part in enumerate(self.parts):
            if isinstance(part, int):
                found.append(part)
            else:
                found += await lease.worker.tokenize(part, add_special=at == 0)
        return tuple(found)


def prompts_of(given: GivenPrompt, where: str, most: int) -> tuple[list[Prompt], bool]:
    """The prompts, at most so many, and whether they are several by their form. Raises
    InvalidRequest, Unsupported."""
    if isinstance(given, str | PromptObject):
        return [_one(given, where)], False
    if not given:
        raise InvalidRequest(f"{where} is empty", param=where)
    if any(isinstance(item, int) for item in given):
        return [_one(_mixed(given, where), where)], False
    if len(given) > most:
        raise InvalidRequest(
            f"{where} holds {len(given)} entries; the maximum is {most}", param=where
        )
    return [_one(item, where) for item in given], True


def _mixed(given: Sequence[Any], where: str) -> MixedPrompt:
    if any(not isinstance(item, int | str) for item in given):
        raise InvalidRequest(
            f"{where} mixes tokens with what is neither a token nor a text", param=where
        )
    return list(given)


def _one(given: Any, where: str) -> Prompt:
    if isinstance(given, PromptObject):
        return Prompt((given.text(),))
    if isinstance(given, str):
        return Prompt((given,))
    if not given:
        raise InvalidRequest(f"{where} contains an empty list", param=where)
    return Prompt(tuple(given))
