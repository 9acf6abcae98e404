"""Quantizing a GGUF file with llama.cpp.

Owns the checks before native code runs, the call, its progress, and that the target appears only
when it is whole. Knows nothing of stores and of where an importance matrix comes from.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from modelfile.errors import BuildError
from modelfile.quantization import QuantizationType, tensor_type
from registry.atomic import free_bytes, whole_path
from registry.errors import StoreFull
from registry.formats.gguf.header import GgufHeader
from registry.formats.gguf.reader import read_header
from runner.backends.host_sampling import native_log
from runner.errors import InternalError

MAX_OVERRIDES = 100
MAX_PATTERN_CHARACTERS = 200
_UNQUANTIZED = frozenset({"F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64"})
_STEP = re.compile(r"\[ *(\d+)/ *(\d+)\]")
_ENOSPC = 28
_MIN_FREE_BYTES = 64 << 20

Progress = Callable[[int, int], None]  # tensors done, tensors in all
Matrix = Mapping[str, NDArray[np.float32]]  # by the tensor's name: the weight of each column


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """What to quantize and how. overrides: pairs of a regular expression over tensor names and
    a tensor type; the first that matches counts."""

    source: Path
    target: Path
    kind: QuantizationType
    overrides: Sequence[tuple[str, str]] = ()
    matrix: Matrix = field(default_factory=dict)
    allow_requantize: bool = False


def quantize(options: QuantizeOptions, progress: Progress) -> float:
    """Write order.target and give its bits per weight. It appears when it is whole; a failure
    leaves nothing.

    Raises BuildError, InvalidGguf, StoreFull, OSError, InternalError.
    """
    header = read_header(options.source)
    _check_source(options, header)
    types = override_types(options, header)
    with whole_path(options.target) as partial:
        _run(options, types, partial, progress)
        written = read_header(partial)
    return 8 * written.tensors_size_bytes / written.parameter_count


def _check_source(options: QuantizeOptions, header: GgufHeader) -> None:
    kind = options.kind
    if not any(len(tensor.dimensions) > 1 for tensor in header.tensors):
        raise BuildError("the model has no weights to quantize")
    stored = {tensor.type for tensor in header.tensors} - _UNQUANTIZED
    if stored and not options.allow_requantize:
        raise BuildError(
            f"the weights are already quantized ({header.quantization}); quantize a file of F16,"
            " BF16 or F32, or allow it with --allow-requantize"
        )
    if kind.needs_imatrix and not options.matrix:
        raise BuildError(
            f"{kind.name} needs an importance matrix; give --imatrix FILE or --calibrate TEXT"
        )
    if options.overrides and not kind.quantized:
        raise BuildError(
            f"{kind.name} uses one type for all tensors; overrides for tensors need another type"
        )
    _check_matrix(options.matrix, header)


def _check_matrix(matrix: Matrix, header: GgufHeader) -> None:
    """llama.cpp ends with a wrong size in the midst of the work; here it is told before."""
    found = False
    for tensor in header.tensors:
        values = matrix.get(tensor.name)
        if values is None:
            continue
        found = True
        layers = tensor.dimensions[2] if len(tensor.dimensions) > 2 else 1
        if values.size != tensor.dimensions[0] * layers and tensor.name != "token_embd.weight":
            raise BuildError(
                f"the importance matrix is for another model: {tensor.name} has {values.size}"
                f" values, expected {tensor.dimensions[0] * layers}"
            )
    if matrix and not found:
        raise BuildError(
            "the importance matrix is for another model: it contains none of the tensor names"
        )


def override_types(options: QuantizeOptions, header: GgufHeader) -> dict[str, int]:
    """ggml's type for each tensor that an override names. Raises BuildError for a pattern that
    is none, or that no tensor matches."""
    if len(options.overrides) > MAX_OVERRIDES:
        raise BuildError(f"{len(options.overrides)} tensor types; at most {MAX_OVERRIDES}")
    types: dict[str, int] = {}
    for text, kind in options.overrides:
        number, pattern = tensor_type(kind), _compiled(text)
        names = [tensor.name for tensor in header.tensors if pattern.search(tensor.name)]
        if not names:
            raise BuildError(f"no tensor's name matches {text!r}; `hearth show` lists them")
        for name in names:
            types.setdefault(name, number)
        _check_needs_matrix(kind, names, options)
    return types


def _check_needs_matrix(kind: str, names: Sequence[str], options: QuantizeOptions) -> None:
    demanding = ("IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S")
    exempt = ("token_embd.weight", "output.weight")
    missing = [name for name in names if name not in options.matrix and name not in exempt]
    if kind.strip().upper() in demanding and missing:
        raise BuildError(
            f"{kind.upper()} for {missing[0]} needs an importance matrix that has it; give"
            " --imatrix FILE or --calibrate TEXT"
        )


def _compiled(text: str) -> re.Pattern[str]:
    if not text or len(text) > MAX_PATTERN_CHARACTERS:
        raise BuildError(
            f"a pattern of tensor names has {len(text)} characters, expected 1 to"
            f" {MAX_PATTERN_CHARACTERS}"
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BuildError(f"{text!r} is not a valid regular expression: {error}") from None


def _run(
    options: QuantizeOptions, types: Mapping[str, int], partial: Path, progress: Progress
) -> None:
    with _log_lines(progress) as complaints:
        params, _kept = _parameters(options, types)
        source, target = os.fsencode(options.source), os.fsencode(partial)
        structure, failed = ctypes.byref(params), list[int]()

        def work() -> None:
            failed.append(native.llama_model_quantize(source, target, structure))

        # llama.cpp cannot be told to stop: in a thread of its own, SIGTERM is answered at once
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join()
    if failed != [0]:
        raise _failure(options, partial, complaints)


def _parameters(options: QuantizeOptions, types: Mapping[str, int]) -> tuple[Any, tuple[Any, ...]]:
    """The native structure, and what it points to, which must be kept as long."""
    params = native.llama_model_quantize_default_params()
    params.ftype = options.kind.file_type
    params.allow_requantize = options.allow_requantize
    overrides = _overrides(types)
    entries, arrays = _matrix_entries(options.matrix)
    if types:
        params.tt_overrides = overrides
    if options.matrix:
        params.imatrix = entries
    return params, (overrides, entries, arrays)


def _overrides(types: Mapping[str, int]) -> Any:
    """Exact names, so that only Python's regular expressions have a say; the last one is null."""
    array = (native.llama_model_tensor_override * (len(types) + 1))()
    for place, (name, number) in enumerate(types.items()):
        # std::regex has no words for other escapes than those of punctuation
        exact = "".join(c if c.isalnum() or c == "_" else "\\" + c for c in name)
        array[place].pattern = f"^{exact}$".encode()
        array[place].type = number
    return array


def _matrix_entries(matrix: Matrix) -> tuple[Any, list[NDArray[np.float32]]]:
    entries = (native.llama_model_imatrix_data * (len(matrix) + 1))()
    arrays = [np.ascontiguousarray(values, np.float32) for values in matrix.values()]
    for place, (name, values) in enumerate(zip(matrix, arrays, strict=True)):
        entries[place].name = name.encode()
        entries[place].data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entries[place].size = values.size
    return entries, arrays


@contextmanager
def _log_lines(progress: Progress) -> Iterator[list[str]]:
    """Inside, llama.cpp's lines about tensors become progress; its complaints are given."""
    complaints: list[str] = []

    def receive(level: int, text: bytes, _user_data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if step := _STEP.match(line):
            progress(int(step[1]) - 1, int(step[2]))
        elif level >= 4 and line.strip("= \n"):
            complaints.append(line)

    callback = native.llama_log_callback(receive)
    native.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        yield complaints
    finally:
        native_log.install()


def _failure(options: QuantizeOptions, partial: Path, complaints: Sequence[str]) -> Exception:
    reason = complaints[-1] if complaints else "no reason given"
    free, folder = free_bytes(partial.parent), partial.parent
    if "iostream" in reason or "basic_ios" in reason:
        if free < _MIN_FREE_BYTES:
            needed = int(options.source.stat().st_size * options.kind.bits_per_weight / 16)
            return StoreFull("write the quantized model", _ENOSPC, needed, free)
        return OSError(5, f"cannot write to {folder.name}")
    return InternalError(f"llama.cpp cannot quantize to {options.kind.name}: {reason[:300]}")
