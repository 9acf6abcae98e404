"""The texts by which weights are quantized and measured: those that were given, or one that every
Python has.

A text that is given for the first only is divided: weights are not measured on what they were
fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from registry.digest import Digest
from registry.store import Store
from runner.errors import InvalidRequest

MAX_TEXT_BYTES: Final = 64 << 20
_DEFAULT_CHARS: Final = 160_000  # about 40,000 tokens: 78 chunks
_SHARE: Final = 0.75  # of a text, to quantize by
_MAX_MEASURED: Final = 256_000  # characters of a text that was not given to be measured


@dataclass(frozen=True, slots=True)
class CalibrationTexts:
    """calibration: to quantize by; evaluation: to measure on; source: what the second is, for
    people."""

    calibration: str
    evaluation: str
    source: str


def calibration_texts(
    store: Store, calibration: Digest | None, evaluation: Digest | None
) -> CalibrationTexts:
    """The texts of blobs, None: not given. Blocks on the disk. Raises InvalidRequest for what is no
    text, BlobMissing, BlobTooLarge, StoreFault."""
    text = _default_text() if calibration is None else _read(store, calibration)
    if evaluation is not None:
        return CalibrationTexts(text, _read(store, evaluation), "the text given for it")
    cut = int(len(text) * _SHARE)
    last = text[cut:][:_MAX_MEASURED]
    what = "hearth's own text" if calibration is None else "the calibration text"
    return CalibrationTexts(text[:cut], last, f"the last quarter of {what}")


def evaluation_text(
    store: Store, calibration: Digest | None, evaluation: Digest | None
) -> tuple[str, str] | None:
    """What a quantization that needs no text is measured on, and what that is, for people: the text
    given for it, else that of the importance matrix; None: it is not measured. Raises as
    calibration_texts."""
    if evaluation is not None:
        return _read(store, evaluation), "the text given for it"
    if calibration is not None:
        return _read(store, calibration)[:_MAX_MEASURED], "the calibration text"
    return None


def _read(store: Store, digest: Digest) -> str:
    try:
        return store.read_blob(digest, MAX_TEXT_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the text is not UTF-8: invalid byte at position {error.start}"
        ) from None


def _default_text() -> str:
    """What Python says of itself, in plain English with code between."""
    if find_spec("pydoc_data") is None:
        raise InvalidRequest(
            "this Python has no text of its own to calibrate with: give one with --calibration"
        )
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))[:_DEFAULT_CHARS]
