"""Cohere's notation: <|START_ACTION|>[{"tool_name": ..., "parameters": {...}}]<|END_ACTION|>."""

from __future__ import annotations

from runner.chat.tools.calls import Tools, from_json
from runner.chat.tools.marked import MarkedParser, Marks
from runner.chat.tools.previewing import HEADS_OF_LIST

MARKERS = ("<|START_ACTION|>",)
KEPT = (*MARKERS, "<|END_ACTION|>")


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser."""
    return MarkedParser(Marks("<|START_ACTION|>", "<|END_ACTION|>", from_json, heads=HEADS_OF_LIST))
