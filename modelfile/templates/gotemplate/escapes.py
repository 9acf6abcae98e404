"""Text in the notations of others: Go's quotes, JSON, HTML, JavaScript, URLs."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import quote_plus

from modelfile.templates.gotemplate.values import to_bytes

_NAMED: Final = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
                 "\v": "\\v", "\\": "\\\\"}  # fmt: skip
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
_JSON = re.compile(r'[\x00-\x1f"\\<>&\u2028\u2029\udc80-\udcff]')
_JSON_NAMED: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n",
                      "\r": "\\r", "\t": "\\t"}  # fmt: skip
_HTML: Final = str.maketrans(
    {'"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "\0": "\ufffd"}
)
_SCRIPT = re.compile(r"[\x00-\x1f\\'\"<>&=]|[^\x00-\x7f]")
_SCRIPT_NAMED: Final = {"\\": "\\\\", "'": "\\'", '"': '\\"'}
_PRINTED: Final = frozenset(
    ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
     "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So")
)  # fmt: skip


def is_printed(character: str) -> bool:
    """unicode.IsPrint: letters, marks, numbers, punctuation, symbols and the ASCII space."""
    return character == " " or unicodedata.category(character) in _PRINTED


def quote(text: str, mark: str = '"', ascii_only: bool = False) -> str:
    """strconv.Quote, QuoteRune and their ASCII forms."""
    if _PLAIN.fullmatch(text):
        return f"{mark}{text}{mark}"
    return mark + "".join(_quoted(c, mark, ascii_only) for c in text) + mark


def _quoted(character: str, mark: str, ascii_only: bool) -> str:
    if character in (mark, "\\"):
        return "\\" + character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if is_printed(character) and (code < 128 or not ascii_only):
        return character
    if character in _NAMED:
        return _NAMED[character]
    if code < 32 or code == 127:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def can_backquote(text: str) -> bool:
    """strconv.CanBackquote."""
    return not re.search(r"[\x00-\x08\x0a-\x1f`\x7f\ufeff\udc80-\udcff]", text)


def json_text(text: str) -> str:
    """A string as encoding/json writes it, with <, > and & escaped."""
    return '"' + _JSON.sub(_json_escape, text) + '"'


def _json_escape(found: re.Match[str]) -> str:
    character = found[0]
    if character >= "\udc80":
        return "\ufffd"
    return _JSON_NAMED.get(character) or f"\\u{ord(character):04x}"


def html(text: str) -> str:
    """template.HTMLEscapeString."""
    return text.translate(_HTML)


def script(text: str) -> str:
    """template.JSEscapeString."""
    return _SCRIPT.sub(_script_escape, text)


def _script_escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SCRIPT_NAMED:
        return _SCRIPT_NAMED[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return character
    return character if code > 127 and is_printed(character) else f"\\u{code:04X}"


def url_query(text: str) -> str:
    """url.QueryEscape."""
    return quote_plus(to_bytes(text), safe="")
