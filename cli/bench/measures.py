"""What is measured of one request. Times in seconds.

TTFT: from sending a request to its first text. TPOT: mean time per token after the first. ITL:
the single gaps between pieces of text. E2E: from sending to the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from cli.bench.events import Answer, BadAnswer, error_message, error_text, events, read_answer
from cli.bench.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Measured:
    """One request. text_times_s holds the arrival of each piece of text; a piece is one token,
    or several where the server holds back incomplete characters."""

    started_s: float
    ended_s: float
    text_times_s: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int = 0
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """Time to the first text."""
        return self.text_times_s[0] - self.started_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for answers of one token."""
        if self.output_tokens < 2:
            return None
        return (self.text_times_s[-1] - self.text_times_s[0]) / (self.output_tokens - 1)


def measure(exchange: Exchange) -> Measured:
    """The measures of a recorded streaming answer of /v1/chat/completions or /v1/completions."""
    try:
        answer = read_answer(exchange)
        if answer.status != 200:
            raise BadAnswer(f"HTTP {answer.status}: {error_text(answer.body)}")
        return _of_stream(exchange, answer)
    except BadAnswer as error:
        return Measured(exchange.started_s, exchange.ended_s, error=str(error))


def _of_stream(exchange: Exchange, answer: Answer) -> Measured:
    times: list[float] = []
    usage: dict[str, object] = {}
    for moment, event in events(answer):
        if "error" in event:
            raise BadAnswer(error_message(event))
        usage = event.get("usage") or usage
        if any(_text(choice) for choice in event.get("choices") or ()):
            times.append(moment)
    if not times:
        raise BadAnswer("the answer holds no text")
    details = usage.get("prompt_tokens_details")
    return Measured(
        started_s=exchange.started_s,
        ended_s=exchange.ended_s,
        text_times_s=tuple(times),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        output_tokens=_count(usage.get("completion_tokens")) or len(times),
    )


def _text(choice: dict[str, dict[str, str]]) -> object:
    delta = choice.get("delta") or {}
    return choice.get("text") or delta.get("content") or delta.get("reasoning_content")


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
