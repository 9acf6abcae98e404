"""Whether a bundle's model can read images, and what that costs.

Knows the keys of a projector's metadata. Loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelfile.errors import BuildError
from modelfile.projectors import check_projector
from registry.bundle import Bundle, BundleFile
from registry.formats.gguf import GgufHeader

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
    computed at once."""

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


def vision_unsupported(bundle: Bundle, backend: str | None = None) -> str | None:
    """Why the model cannot read images; None: it can. backend: the requested
    one."""
    name = bundle.name.short
    if bundle.projector is None:
        return (
            f"{name} cannot process images: it has no projector. Use a model with the vision "
            "capability, or create it again with a second FROM that names its mmproj file"
        )
    if bundle.header.keeps_checkpoint or (backend or bundle.parameters.get("backend")) == "torch":
        return (
            f"{name} cannot process images with the torch backend. Create it"
            " again without PARAMETER backend torch"
        )
    try:
        check_projector(bundle.projector.header, bundle.header)
    except BuildError as error:
        return f"{name} cannot process images: {error}"
    return None


def projector_of(bundle: Bundle, backend: str | None = None) -> BundleFile | None:
    """The projector to load with the model; None: there is none that can be used, and the model
    answers texts."""
    return bundle.projector if vision_unsupported(bundle, backend) is None else None


def projector_shape(file: BundleFile | None) -> ProjectorShape | None:
    """The numbers of the memory plan."""
    if file is None:
        return None
    header = file.header
    embedding = _number(header, "embedding_length")
    return ProjectorShape(
        weights_bytes=file.size_bytes,
        patches=_patches(header),
        embedding_length=embedding,
        feed_forward_length=_number(header, "feed_forward_length") or 4 * embedding,
        heads=_number(header, "attention.head_count"),
    )


def _patches(header: GgufHeader) -> int:
    """The most patches that an image is cut into at once."""
    patch, side = _number(header, "patch_size"), _number(header, "image_size")
    if not patch:
        return _DEFAULT_PATCHES
    limit = _MAX_PATCHES.get(str(header.metadata.get("clip.projector_type")), 0)
    pixels = max(side * side, _number(header, "image_max_pixels"))
    return max(1, limit, pixels // (patch * patch))


def _number(header: GgufHeader, key: str) -> int:
    """A number of the vision encoder, 0 where the file does not say it or says nonsense."""
    value = header.metadata.get(f"clip.vision.{key}")
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value < 1 << 24 else 0
