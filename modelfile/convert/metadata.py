"""One value of a GGUF's metadata, as a converter hands it to the writer.

Knows no file: modelfile/convert/writer.py turns it into bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ValueType = Literal[
    "bool", "f32", "f32s", "i32", "i32s", "string", "strings", "u32", "u32s", "u64", "u8s", "bools"
]
Value = bool | int | float | str | bytes | Sequence[bool | int | float | str | bytes]


@dataclass(frozen=True, slots=True)
class MetadataValue:
    """key: such as "general.name". kind: the GGUF type; a plural is an array of it.

    A string is str, or bytes where it need not be UTF-8; u8s may be bytes.
    """

    key: str
    kind: ValueType
    value: Value
