"""Ids of answers: unique, and useless for guessing another."""

from __future__ import annotations

import secrets


def new_id(prefix: str) -> str:
    """A fresh id such as chatcmpl-3f..."""
    return f"{prefix}-{secrets.token_hex(12)}"
