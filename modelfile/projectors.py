"""Whether a GGUF is a projector, which makes embeddings of images or recordings, and whether it is
for a model.

The rules are those of llama.cpp's tools/mtmd (clip_n_mmproj_embd, mtmd_init_from_file), which
would refuse the projector when the model is first used; here it is refused when the model is made.
"""

from __future__ import annotations

from typing import Final

from modelfile.errors import BuildError
from registry.errors import InvalidGguf
from registry.formats.gguf import GgufHeader
from registry.formats.gguf.projector_rules import (
    ARCHITECTURE,
    check_projector_file,
    projector_kind,
)

_KIND: Final = "mmproj"

# Which tensor tells the width of the embeddings, and by which of its dimensions.
_WIDTHS: Final[dict[str, tuple[str, int]]] = {
    **dict.fromkeys(
        ("mlp", "phi4", "pixtral", "lightonocr", "lfm2", "kimivl", "kimik25", "paddleocr"),
        ("mm.2.weight", 1),
    ),
    **dict.fromkeys(
        ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "exaone4_5", "youtuvl"),
        ("mm.2.bias", 0),
    ),
    **dict.fromkeys(("gemma3", "gemma3nv"), ("mm.input_projection.weight", 0)),
    **dict.fromkeys(("gemma4v", "gemma4uv"), ("mm.input_projection.weight", 1)),
    **dict.fromkeys(("idefics3", "llama4"), ("mm.model.fc.weight", 1)),
    **dict.fromkeys(("internvl", "nemotron_v2_vl"), ("mm.model.mlp.3.weight", 1)),
    **dict.fromkeys(("glm4v", "cogvlm"), ("mm.down.weight", 1)),
    "resampler": ("resampler.proj.weight", 0),
    "adapter": ("adapter.linear.dense_4h_to_h.weight", 1),
    "ldp": ("mm.model.mb_block.1.block.2.1.bias", 0),
    "ldpv2": ("mm.model.peg.0.bias", 0),
    **dict.fromkeys(("ultravox", "voxtral"), ("mm.a.mlp.2.weight", 1)),
    "qwen2a": ("mm.a.fc.weight", 1),
}
_NORMED: Final = ("mm.3.bias", 0)  # of an mlp that ends with a norm


def is_projector(header: GgufHeader) -> bool:
    """Whether the file holds a projector and not a model."""
    kind = header.metadata.get("general.type")
    return kind == _KIND or (kind is None and header.architecture == ARCHITECTURE)


def check_projector(projector: GgufHeader, base: GgufHeader) -> None:
    """Refuse what makes no embeddings of images or recordings for the model base. Raises
    BuildError."""
    if not is_projector(projector):
        kind = projector.metadata.get("general.type") or f"a model ({projector.architecture})"
        raise BuildError(f"the file is not a projector but {kind}")
    try:
        check_projector_file(projector)
    except InvalidGguf as error:
        raise BuildError(error.message) from None
    width, wanted = embedding_width(projector), base.embedding_length
    if width is not None and wanted is not None and width != wanted:
        raise BuildError(
            f"the projector produces embeddings of {width} values, but the model's have "
            f"{wanted}: it was"
            " made for another model"
        )


def embedding_width(projector: GgufHeader) -> int | None:
    """Numbers of an embedding that it makes; None for a kind whose tensors are not known here."""
    kind = projector_kind(projector)
    dimensions = {tensor.name: tensor.dimensions for tensor in projector.tensors}
    place = _WIDTHS.get(kind)
    if kind == "mlp" and _NORMED[0] in dimensions:
        place = _NORMED
    name, index = place or ("", 0)
    found = dimensions.get(name, ())
    return found[index] if index < len(found) else None
