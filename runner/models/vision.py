"""Whether a bundle's model can read images and recordings, and what that costs.

Knows the keys of a projector's metadata. Loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from modelfile.errors import BuildError
from modelfile.load_quantization import OFF
from modelfile.projectors import check_projector
from registry.bundle import Bundle, BundleFile
from registry.formats.gguf import GgufHeader
from registry.formats.gguf.audio_projector_rules import FRAMES, audio_kind
from registry.formats.gguf.audio_projector_rules import KINDS as AUDIO_KINDS
from runner.types import MediaKind

_WORDS: Final[dict[MediaKind, str]] = {"image": "images", "audio": "recordings"}
_DEFAULT_PATCHES: Final = 4096
IMAGE_BYTES: Final = 256 << 20  # of images being decoded, and of their embeddings, which are kept
# Kinds that keep the size of an image, up to so many patches (tools/mtmd/clip.cpp: limits in
# tokens of two patches by two).
_MAX_PATCHES: Final = dict.fromkeys(
    ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger"), 4096 * 4
)


@dataclass(frozen=True, slots=True)
class ProjectorShape:
    """The numbers of what makes embeddings of images. patches: the most of an image that are
    computed at once, or of frames of a recording."""

    weights_bytes: int
    patches: int
    embedding_length: int
    feed_forward_length: int
    heads: int

    def compute_bytes(self, flash_attention: bool | None) -> int:
        """An upper estimate of its buffers, and the embeddings that are kept. Measured for the
        encoder of Gemma 3: 90 MiB, 1132 without flash attention."""
        attention = 6 * self.embedding_length
        if flash_attention is False:
            attention += self.heads * self.patches
        feed_forward = self.embedding_length + 3 * self.feed_forward_length
        return 4 * self.patches * max(attention, feed_forward) + IMAGE_BYTES


def media_unsupported(
    bundle: Bundle,
    kind: MediaKind = "image",
    backend: str | None = None,
    quantize: str | None = None,
) -> str | None:
    """Why the model cannot read images, or recordings; None: it can. backend and quantize: the
    requested ones."""
    fault = _projector_fault(bundle, kind, backend, quantize)
    return None if fault is None else f"{bundle.name.short} cannot process {_WORDS[kind]}{fault}"


def _projector_fault(
    bundle: Bundle, kind: MediaKind | None, backend: str | None, quantize: str | None = None
) -> str | None:
    """kind None: either will do."""
    if bundle.projector is None:
        way, capability = (
            ("Send what /v1/audio/transcriptions makes of them, use", "audio")
            if kind == "audio"
            else ("Use", "vision")
        )
        return (
            f": it has no projector. {way} a model with the {capability} capability, or create it"
            " again with a second FROM that names its mmproj file"
        )
    if bundle.header.keeps_checkpoint or (backend or bundle.parameters.get("backend")) == "torch":
        return " with the torch backend. Create it again without PARAMETER backend torch"
    if (quantize or bundle.parameters.get("quantize", OFF)) != OFF:
        return " while its weights are quantized by PyTorch. Load it without quantize"
    header = bundle.projector.header
    try:
        check_projector(header, bundle.header)
    except BuildError as error:
        return f": {error}"
    if kind == "audio" and audio_kind(header) not in AUDIO_KINDS:
        known = ", ".join(sorted(AUDIO_KINDS))
        return f": its projector has no audio encoder of a kind that is supported ({known})"
    if kind == "image" and not _has(header, "vision"):
        return ": its projector is for audio"
    return None


def projector_fault(bundle: Bundle) -> str | None:
    """Why the bundle's projector is of no use; None: it is."""
    fault = _projector_fault(bundle, None, None)
    return None if fault is None else f"{bundle.name.short} cannot use its projector{fault}"


def projector_of(bundle: Bundle, backend: str | None = None) -> BundleFile | None:
    """The projector to load with the model; None: there is none that can be used, and the model
    answers texts."""
    return bundle.projector if _projector_fault(bundle, None, backend) is None else None


def projector_shape(file: BundleFile | None) -> ProjectorShape | None:
    """The numbers of the memory plan."""
    if file is None:
        return None
    modalities = [name for name in ("vision", "audio") if _has(file.header, name)]
    shapes = [_tower_shape(file, name) for name in modalities]
    return max(shapes, key=lambda shape: shape.compute_bytes(None), default=None)


def _has(header: GgufHeader, modality: str) -> bool:
    return header.metadata.get(f"clip.has_{modality}_encoder") is True


def _tower_shape(file: BundleFile, modality: str) -> ProjectorShape:
    def number(key: str) -> int:
        """0 where the file does not say it or says nonsense."""
        value = file.header.metadata.get(f"clip.{modality}.{key}")
        if not isinstance(value, int) or isinstance(value, bool):
            return 0
        return value if 0 <= value < 1 << 24 else 0

    embedding = number("embedding_length")
    return ProjectorShape(
        weights_bytes=file.size_bytes,
        patches=FRAMES if modality == "audio" else _patches(file.header, number),
        embedding_length=embedding,
        feed_forward_length=number("feed_forward_length") or 4 * embedding,
        heads=number("attention.head_count"),
    )


def _patches(header: GgufHeader, number: Callable[[str], int]) -> int:
    """The most patches that an image is cut into at once."""
    patch, side = number("patch_size"), number("image_size")
    if not patch:
        return _DEFAULT_PATCHES
    limit = _MAX_PATCHES.get(str(header.metadata.get("clip.projector_type")), 0)
    pixels = max(side * side, number("image_max_pixels"))
    return max(1, limit, pixels // (patch * patch))
