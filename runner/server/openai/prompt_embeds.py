"""prompt_embeds of completions: embedded tokens in place of a prompt, as vLLM has them.

Decodes base64 only: what the tensors hold the worker reads.
"""

from __future__ import annotations

from runner.errors import InvalidRequest
from runner.server.generation import MAX_SEQUENCES
from runner.server.images import MAX_COPIED_BYTES, bytes_of_base64
from runner.server.request_body import WireModel

_PARAM = "prompt_embeds"


def check_embedded_prompt(body: WireModel) -> None:
    """Raises InvalidRequest for fields of a completion that need a prompt of text."""
    for name in ("prompt", "suffix", "echo", "prompt_logprobs", "return_token_ids"):
        if not any(getattr(body, name) is given for given in (None, False)):
            raise InvalidRequest(
                f"{_PARAM} and {name} cannot be combined: the prompt has no text", param=_PARAM
            )


def tensors_of(given: str | list[str], answers: int) -> list[bytes]:
    """The tensors' files, one or several, for so many answers to each. Raises InvalidRequest."""
    texts = [given] if isinstance(given, str) else given
    if not 0 < len(texts) <= MAX_SEQUENCES:
        raise InvalidRequest(
            f"{_PARAM} has {len(texts)} entries, 1 to {MAX_SEQUENCES} are allowed", param=_PARAM
        )
    if sum(map(len, texts)) * answers > MAX_COPIED_BYTES:
        raise InvalidRequest(
            f"{_PARAM} is too large for {answers} answers: ask for fewer at a time", param="n"
        )
    return [bytes_of_base64(text, _PARAM) for text in texts]
