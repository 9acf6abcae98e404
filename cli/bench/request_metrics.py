"""What is measured of one request. Times in seconds.

TTFT: from sending a request to its first text. TPOT: mean time per token after the first. ITL:
the single gaps between pieces of text. E2E: from sending to the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from cli.bench.timed_response import InvalidResponse, TimedResponse, sse_events


@dataclass(frozen=True, slots=True)
class RequestMetrics:
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


def request_metrics(record: TimedResponse) -> RequestMetrics:
    """The measures of a recorded streaming answer of /v1/chat/completions or /v1/completions."""
    try:
        return _of_stream(record)
    except InvalidResponse as error:
        return RequestMetrics(record.started_s, record.ended_s, error=str(error))


def _of_stream(record: TimedResponse) -> RequestMetrics:
    times: list[float] = []
    usage: dict[str, object] = {}
    for moment, event in sse_events(record):
        if "error" in event:
            error = event["error"]
            raise InvalidResponse(str(error.get("message") if isinstance(error, dict) else error))
        usage = event.get("usage") or usage
        if any(_text(choice) for choice in event.get("choices") or ()):
            times.append(moment)
    if not times:
        raise InvalidResponse("the response contains no text")
    details = usage.get("prompt_tokens_details")
    return RequestMetrics(
        started_s=record.started_s,
        ended_s=record.ended_s,
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
