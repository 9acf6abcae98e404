"""Rules on a projector's file: what llama.cpp's libmtmd (tools/mtmd/clip.cpp) takes for granted,
which ends the process where it does not find it.

The vision towers of common kinds are checked tensor by tensor, those of others by their keys and
types; audio_projector_rules.py checks audio encoders. Whether a projector is for a model is not
decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.architectures import check_weight_type
from registry.formats.gguf.audio_projector_rules import KINDS as AUDIO_KINDS
from registry.formats.gguf.audio_projector_rules import audio_kind, check_audio_tower
from registry.formats.gguf.header import GgufHeader
from registry.formats.gguf.projector_tower import Tower

ARCHITECTURE: Final = "clip"
_KIND_KEYS: Final = ("clip.projector_type", "clip.vision.projector_type")
_MAX_VALUE: Final = 1 << 20
_MAX_IMAGE_SIZE: Final = 1 << 14
_MAX_BLOCKS: Final = 1024
# The numbers that every projector of images has, with the most that is believable.
_NUMBERS: Final = {
    "image_size": (1, _MAX_IMAGE_SIZE),
    "patch_size": (1, _MAX_IMAGE_SIZE),
    "embedding_length": (1, _MAX_VALUE),
    "attention.head_count": (1, _MAX_VALUE),
    "block_count": (1, _MAX_BLOCKS),
    "feed_forward_length": (0, _MAX_VALUE),  # some old files have 0
    "projection_dim": (0, _MAX_VALUE),
}
_OPTIONAL: Final = {
    "projector.scale_factor": (1, 64),
    "spatial_merge_size": (1, 64),
    "preproc_image_size": (1, _MAX_IMAGE_SIZE),
}
# Of libmtmd's kinds (clip-impl.h), those for images.
KINDS: Final = frozenset(
    (
        *("mlp", "ldp", "ldpv2", "resampler", "adapter", "qwen2vl_merger", "qwen2.5vl_merger"),
        *("qwen3vl_merger", "ling3vl", "step3vl", "gemma3", "gemma3nv", "gemma4v", "gemma4uv"),
        *("phi4", "idefics3", "pixtral", "internvl", "llama4", "qwen2.5o", "lfm2", "kimivl"),
        *("paddleocr", "lightonocr", "cogvlm", "janus_pro", "dots_ocr", "dots3note_v", "glm4v"),
        *("deepseekocr", "deepseekocr2", "deepseek4v", "glm5v", "youtuvl", "yasa2", "kimik25"),
        *("nemotron_v2_vl", "exaone4_5", "hunyuanvl", "minicpmv4_6", "mimovl", "minimax_m3"),
        *("granite4_vision", "muse-glimmer"),
    )
)


def check_projector_file(header: GgufHeader) -> None:
    """Refuse a file that is no sound projector of images or recordings. Raises InvalidGguf."""
    if header.architecture != ARCHITECTURE:
        raise InvalidGguf(
            f"not a projector: its architecture is {header.architecture}, expected {ARCHITECTURE}"
        )
    sees = header.metadata.get("clip.has_vision_encoder") is True
    if not sees and audio_kind(header) is None:
        raise InvalidGguf("the projector has no vision encoder and no audio encoder")
    if header.metadata.get("clip.has_gen_audio_encoder") is True:
        raise InvalidGguf("the projector generates audio, which is not supported")
    if not header.tensors:
        raise InvalidGguf("the projector has no tensors")
    for tensor in header.tensors:
        check_weight_type(tensor)
    if sees:
        _check_keys(header)
        tower = _TOWERS.get(projector_kind(header))
        if tower is not None:
            tower(header).run()
    if not sees or audio_kind(header) in AUDIO_KINDS:
        check_audio_tower(header)


def projector_kind(header: GgufHeader) -> str:
    """What libmtmd calls its kind; "" where the file does not say."""
    return str(next((k for key in _KIND_KEYS if (k := header.metadata.get(key))), ""))


def _check_keys(header: GgufHeader) -> None:
    kind = projector_kind(header)
    if kind not in KINDS:
        raise InvalidGguf(
            f"clip.projector_type is {shown(kind)}, which is not a known kind for images"
        )
    for name, (low, high) in _NUMBERS.items():
        value = _vision(header, name)
        if type(value) is not int or not low <= value <= high:
            _refuse(name, value, f"{low} to {high}")
    for name, (low, high) in _OPTIONAL.items():
        value = _vision(header, name)
        if value is not None and not low <= value <= high:
            _refuse(name, value, f"{low} to {high}")
    patch, size = _vision(header, "patch_size"), _vision(header, "image_size")
    if patch > size:
        _refuse("patch_size", patch, f"at most the image size {size}")
    width, heads = _vision(header, "embedding_length"), _vision(header, "attention.head_count")
    if width % heads and _vision(header, "attention.head_dim") is None:
        _refuse("attention.head_count", heads, f"a divisor of the width {width}")
    if _vision(header, "attention.layer_norm_epsilon") is None:
        _refuse("attention.layer_norm_epsilon", None, "a number from 0 on")
    for name in ("image_mean", "image_std"):
        values = _vision(header, name)
        good = isinstance(values, tuple) and len(values) >= 3 and all(map(isfinite, values))
        if not good or (name == "image_std" and not all(values)):
            _refuse(name, values, "three finite numbers")
    if header.metadata.get("clip.use_gelu") and header.metadata.get("clip.use_silu"):
        raise InvalidGguf("clip.use_gelu and clip.use_silu are both set")


def _vision(header: GgufHeader, name: str) -> Any:
    return header.metadata.get(f"clip.vision.{name}")


def _refuse(name: str, value: Any, expected: str) -> None:
    found = shown(value) if isinstance(value, str) else value
    raise InvalidGguf(f"clip.vision.{name} is {found}, expected {expected}")


class _Tower(Tower):
    """A vision transformer with plain heads and what stands behind it."""

    def __init__(self, header: GgufHeader) -> None:
        super().__init__(header, "vision")
        self.patch: int = _vision(header, "patch_size")
        self.side: int = _vision(header, "image_size") // self.patch

    def ends(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The tensors before and behind the blocks."""
        width = self.width
        yield "v.patch_embd.weight", (self.patch, self.patch, 3, width)
        yield "v.patch_embd.bias?", (width,)
        for name in ("v.pre_ln", "v.post_ln"):
            yield f"{name}.weight?", (width,)
            yield f"{name}.bias?", (width,)


class _Siglip(_Tower):
    """Every patch has a position, which is added to it."""

    def ends(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from super().ends()
        positions = self.tensors.get("v.position_embd.weight")
        if positions is not None and positions.type != "F32":
            raise InvalidGguf(f"tensor {positions.name} is of type {positions.type}, expected F32")
        yield "v.position_embd.weight", (self.width, self.side**2)


class _Llava(_Tower):
    """A row of positions for the patches and for what stands for all of them, and two or, of Yi's
    kind, three more maps."""

    def ends(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from super().ends()
        yield "v.class_embd?", (self.width,)
        positions = self.side**2 + ("v.class_embd" in self.tensors)
        yield "v.position_embd.weight", (self.width, positions)
        layers = _vision(self.header, "feature_layer") or (0,)
        size = self.width * len(layers)
        for number in (0, 1, 3, 4) if "mm.3.weight" in self.tensors else (0, 2):
            tensor = self.tensors.get(f"mm.{number}.weight")
            shape = (size,) if tensor is None else (size, *tensor.dimensions[1:2])
            vector = tensor is not None and len(tensor.dimensions) == 1
            optional = "?" if number == 2 and tensor is None else ""
            yield f"mm.{number}.weight{optional}", shape
            yield f"mm.{number}.bias{optional}", shape[-1:]
            size = size if vector else shape[-1]


class _Idefics3(_Siglip):
    def ends(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from super().ends()
        merged = _vision(self.header, "projector.scale_factor") or 0
        if not merged or self.side % merged:
            _refuse("projector.scale_factor", merged, f"a divisor of {self.side} patches")
        if _vision(self.header, "preproc_image_size") is None:
            _refuse("preproc_image_size", None, f"1 to {_MAX_IMAGE_SIZE}")
        yield "mm.model.fc.weight", (self.width * merged**2, self.projection)


class _Gemma3(_Siglip):
    def ends(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from super().ends()
        merged = _vision(self.header, "projector.scale_factor") or 4
        if self.side % merged:
            _refuse("projector.scale_factor", merged, f"a divisor of {self.side} patches")
        yield "mm.input_projection.weight", (self.projection, self.width)
        yield "mm.soft_emb_norm.weight", (self.width,)


class _Qwen2(_Tower):
    """Positions are rotations; two pictures are one patch, and four patches one token."""

    bias = ""

    def ends(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from super().ends()
        heads = _vision(self.header, "attention.head_count")
        if self.width // heads % 4:
            _refuse("attention.head_count", heads, "heads of a multiple of 4")
        yield "v.patch_embd.weight.1", (self.patch, self.patch, 3, self.width)
        if "v.patch_embd.bias" in self.tensors:
            raise InvalidGguf("a projector of this kind has no tensor v.patch_embd.bias")
        first = self.tensors.get("mm.0.weight")
        inner = first.dimensions[1] if first is not None and len(first.dimensions) > 1 else 0
        yield "mm.0.weight", (4 * self.width, inner)
        yield "mm.0.bias", (inner,)
        yield "mm.2.weight", (inner, self.projection)
        yield "mm.2.bias", (self.projection,)


_TOWERS: Final[dict[str, type[_Tower]]] = {
    "mlp": _Llava,
    "idefics3": _Idefics3,
    "gemma3": _Gemma3,
    "qwen2vl_merger": _Qwen2,
}
