"""DeepSeek V3.2 and V4: <｜DSML｜function_calls>, later <｜DSML｜tool_calls>, around invoke and
parameter elements with the same marker before each word. Templates put the words together, so
that the marker alone tells."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.invoke_calls import invoke_parser

_MARKER = "｜DSML｜"
_AROUND = tuple(
    (f"<{_MARKER}{word}>", f"</{_MARKER}{word}>") for word in ("function_calls", "tool_calls")
)

FAMILY = Family(
    thinking_names=("deepseek3.2",),
    markers=(_MARKER,),
    special_tokens=(*(text for pair in _AROUND for text in pair), _MARKER),
    tool_parser=lambda tools: invoke_parser(tools, *_AROUND),
)
