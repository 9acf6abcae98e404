"""Cohere's notation: <|START_ACTION|>[{"tool_name": ..., "parameters": {...}}]<|END_ACTION|>."""

from __future__ import annotations

from runner.chat.tools.call_stream import HEADS_OF_LIST
from runner.chat.tools.calls import Tools, calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters

MARKERS = ("<|START_ACTION|>",)
KEPT = (*MARKERS, "<|END_ACTION|>")


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser."""
    return DelimitedParser(
        Delimiters("<|START_ACTION|>", "<|END_ACTION|>", calls_from_json, heads=HEADS_OF_LIST)
    )
