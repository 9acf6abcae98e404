"""Rules on the audio tower of a projector's file: what llama.cpp's libmtmd (tools/mtmd/clip.cpp,
models/whisper-enc.cpp) takes for granted, which ends the process where it does not find it.

Knows the encoders that are Whisper's, with what three kinds of models have behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.header import GgufHeader
from registry.formats.gguf.projector_tower import Tower

FRAMES: Final = 1500  # of 30 seconds, which are always computed at once
KINDS: Final = frozenset(("ultravox", "voxtral", "qwen2a", "qwen2.5o"))
_AVERAGED: Final = frozenset(("voxtral", "qwen2a", "qwen2.5o"))  # every two frames are one
_STACKED: Final = frozenset(("ultravox", "voxtral"))
_MAX_VALUE: Final = 1 << 20
_NUMBERS: Final = {
    "num_mel_bins": 256,
    "embedding_length": _MAX_VALUE,
    "feed_forward_length": _MAX_VALUE,
    "projection_dim": _MAX_VALUE,
    "attention.head_count": _MAX_VALUE,
    "block_count": 1024,
}


def audio_kind(header: GgufHeader) -> str | None:
    """What libmtmd calls the kind of the file's audio tower; None: it has none."""
    if header.metadata.get("clip.has_audio_encoder") is not True:
        return None
    keys = ("clip.projector_type", "clip.audio.projector_type")
    return str(next((kind for key in keys if (kind := header.metadata.get(key))), ""))


def check_audio_tower(header: GgufHeader) -> None:
    """Refuse what libmtmd cannot compute. Raises InvalidGguf."""
    kind = audio_kind(header)
    if kind not in KINDS:
        raise InvalidGguf(
            f"the projector's audio encoder is of the kind {shown(kind or '')}; known are"
            f" {', '.join(sorted(KINDS))}"
        )
    for name, high in _NUMBERS.items():
        value = _number(header, name)
        if type(value) is not int or not 0 < value <= high:
            _refuse(name, value, f"1 to {high}")
    width, heads = _number(header, "embedding_length"), _number(header, "attention.head_count")
    if width % heads:
        _refuse("attention.head_count", heads, f"a divisor of the width {width}")
    for name, only in (("attention.head_count_kv", heads), ("attention.head_dim", width // heads)):
        if _number(header, name) not in (None, only):
            _refuse(name, _number(header, name), str(only))
    if type(_number(header, "attention.layer_norm_epsilon")) is not float:
        _refuse("attention.layer_norm_epsilon", None, "a number")
    _Whisper(header, kind).run()


def _number(header: GgufHeader, name: str) -> Any:
    return header.metadata.get(f"clip.audio.{name}")


def _refuse(name: str, value: Any, expected: str) -> None:
    raise InvalidGguf(f"clip.audio.{name} is {value!r:.60}, expected {expected}")


class _Whisper(Tower):
    bias, may_swap = "", False

    def __init__(self, header: GgufHeader, kind: str) -> None:
        super().__init__(header, "audio")
        self.kind = kind
        self.stacked = self._stack_factor() if kind in _STACKED else 1

    def _stack_factor(self) -> int:
        """Frames that become one token: of all frames libmtmd must get as many as it counts."""
        factor: int = _number(self.header, "projector.stack_factor")
        if type(factor) is not int or not 0 < factor <= 64:
            _refuse("projector.stack_factor", factor, "1 to 64")
        halved = 2 if self.kind in _AVERAGED else 1
        stride = factor * self.width
        padded = (FRAMES // halved * self.width + stride - 1) & ~(stride - 1)  # GGML_PAD
        if padded // stride != -(-2 * FRAMES // factor) // 2 // halved:
            _refuse("projector.stack_factor", factor, f"a divisor of {FRAMES // halved} frames")
        return factor

    def blocks(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for name, shape in super().blocks():
            if name.endswith("attn_k.bias"):
                if name in self.tensors:
                    raise InvalidGguf(f"a projector of this kind has no tensor {name}")
            else:
                norm = name.endswith(("ln1.bias?", "ln2.bias?"))
                yield name.removesuffix("?") if norm else name, shape

    def ends(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        width, inputs = self.width, _number(self.header, "num_mel_bins")
        for number, size in ((1, inputs), (2, width)):
            yield f"a.conv1d.{number}.weight", (3, size, width)
            yield f"a.conv1d.{number}.bias", (1, width)
        positions = self.tensors.get("a.position_embd.weight")
        length = positions.dimensions[-1] if positions is not None else 0
        yield "a.position_embd.weight", (width, max(FRAMES, length))
        for part in ("weight", "bias"):
            yield f"a.post_ln.{part}?", (width,)
        for name, types in (
            ("a.position_embd.weight", ("F32",)),
            *((f"a.conv1d.{number}.bias", ("F32",)) for number in (1, 2)),
            *((f"a.conv1d.{number}.weight", ("F16", "F32")) for number in (1, 2)),
        ):
            tensor = self.tensors.get(name)
            if tensor is not None and tensor.type not in types:
                raise InvalidGguf(f"tensor {name} is of type {tensor.type}, expected {types[0]}")
        yield from self._projection()

    def _projection(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        if self.kind not in _STACKED:
            yield "mm.a.fc.weight", (self.width, self.projection)
            yield "mm.a.fc.bias", (self.projection,)
            return
        size = self.width * self.stacked
        first = self.tensors.get("mm.a.mlp.1.weight")
        inner = first.dimensions[1] if first is not None and len(first.dimensions) > 1 else 0
        yield "mm.a.mlp.1.weight", (size, inner)
        halves = inner // 2 if self.kind == "ultravox" else inner
        yield "mm.a.mlp.2.weight", (halves, self.projection)
        if self.kind == "ultravox":
            yield "mm.a.norm_pre.weight", (size,)
            yield "mm.a.norm_mid.weight", (halves,)
