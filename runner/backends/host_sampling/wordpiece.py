"""What a text must become before llama.cpp splits it for a WordPiece vocabulary, BERT's.

BERT's own tokenizer takes letters apart, drops what takes no room, and has one unknown token for a
word of more than 100 letters. llama.cpp keeps one part of each letter, which leaves one sound of a
Korean syllable, and splits words of any length.
"""

from __future__ import annotations

import re
import unicodedata

_LETTER = "[^\\W_\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"  # Han stand alone
_LONG_WORD = re.compile(f"(?<!{_LETTER}){_LETTER}{{101,}}")
_UNKNOWN = "\uffff"  # in no vocabulary


def normalized(data: bytes, *, strips_accents: bool) -> bytes:
    """The UTF-8 text, from which llama.cpp makes the tokens that BERT's tokenizer makes of data."""
    text = data.decode("utf-8", "replace")
    if strips_accents and not text.isascii():
        parts = unicodedata.normalize("NFD", text)
        text = "".join(part for part in parts if unicodedata.category(part) != "Mn")
    return _LONG_WORD.sub(_UNKNOWN, text).encode()
