"""Writing a GGUF file whose layout is known, tensor by tensor.

The file has its name when it is complete; a failure leaves nothing. At no time is more than a
few MiB, or one head of one projection, in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from modelfile.convert.layout import FileLayout, padded
from modelfile.convert.plan import ComputedWeight
from modelfile.convert.tensor_data import TensorSource
from modelfile.errors import ConvertError
from registry.atomic import open_regular, require_space, whole_file
from registry.copies import copy_range, write_all
from registry.formats.safetensors import TensorEntry

Content = TensorSource | TensorEntry | ComputedWeight  # an entry is copied as it is
Report = Callable[[str, int, int], None]  # status, bytes written, bytes in all
STATUS: Final = "converting"


def write(target: Path, layout: FileLayout, contents: Sequence[Content], report: Report) -> None:
    """Write the file; contents: one for each place of the layout. Raises ConvertError, StoreFull,
    OSError."""
    require_space("write the model", target.parent, layout.size_bytes)
    with whole_file(target) as output:
        _write_contents(output, layout, contents, report)


def _write_contents(
    output: int, layout: FileLayout, contents: Sequence[Content], report: Report
) -> None:
    write_all(output, layout.header)
    done = len(layout.header)
    for place, content in zip(layout.places, contents, strict=True):
        written = 0
        for count in _tensor(output, content):
            written += count
            report(STATUS, done + written, layout.size_bytes)
        if written != place.size_bytes:
            raise ConvertError(
                f"tensor {place.name} has {written} bytes, not {place.size_bytes} as planned"
            )
        write_all(output, bytes(padded(written) - written))
        done += padded(written)
    report(STATUS, layout.size_bytes, layout.size_bytes)


def _tensor(output: int, content: Content) -> Iterator[int]:
    """Writes one tensor; gives the bytes of each piece."""
    if isinstance(content, ComputedWeight):
        yield write_all(output, np.array(content.values, "<f4").tobytes())
    elif isinstance(content, TensorEntry):
        yield from _copy(output, content, content.start, content.size_bytes)
    elif content.plain:
        for entry, start, size_bytes in content.ranges():
            yield from _copy(output, entry, start, size_bytes)
    else:
        for piece in content.pieces():
            yield write_all(output, piece.data.cast("B"))


def _copy(output: int, entry: TensorEntry, start: int, size_bytes: int) -> Iterator[int]:
    source = open_regular(entry.path)
    try:
        yield from copy_range(source, start, size_bytes, output)
    except EOFError:
        raise ConvertError(f"{entry.path.name} became shorter while being read") from None
    finally:
        os.close(source)
