"""What a student is: the words of config.json, and the teacher's values for the rest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from registry.formats.gguf import GgufHeader
from runner.errors import InvalidRequest

MAX_PARAMETERS: Final = 2 * 10**9
SHORT: Final = 512  # tokens of a document whose scores are computed in whole, see attend
_BLOCK: Final = 32  # of the formats that weights are stored in
_FIELDS: Final = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "key_value_heads",
    "intermediate_size": "feed_forward",
    "max_position_embeddings": "context",
    "rope_theta": "rope_base",
    "rms_norm_eps": "norm_epsilon",
}
_FLOATS: Final = ("rope_theta", "rms_norm_eps")
_MAX_FLOAT: Final = 1e12
_SHOWN_CHARS: Final = 60  # of a name or a value
_FIXED: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
"""What config.json may say and a student always is."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama with tied embeddings."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    key_value_heads: int
    feed_forward: int
    context: int = 2048
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Weights, embeddings counted once."""
        attention = 2 * self.width * (self.heads + self.key_value_heads) * self.head_width
        block = attention + 3 * self.width * self.feed_forward + 2 * self.width
        return self.vocabulary * self.width + self.layers * block + self.width


def shape_of(config: Mapping[str, Any], teacher: GgufHeader) -> Shape:
    """The student that config describes. Raises InvalidRequest naming the value."""
    for name, value in config.items():
        if name in _FIXED and value != _FIXED[name]:
            raise _wrong(name, value, f"a student is always {_FIXED[name]!r}")
        if name not in _FIELDS and name not in _FIXED:
            known = ", ".join(_FIELDS)
            raise _wrong(name, value, f"a student's config has {known}")
    values = {**_of_teacher(teacher), **config}
    sizes: dict[str, Any] = {"vocabulary": teacher.vocabulary_size or 0}
    for name, field in _FIELDS.items():
        value = values.get(name)
        if name in _FLOATS:
            if (
                not isinstance(value, int | float)
                or isinstance(value, bool)
                or not 0 < value <= _MAX_FLOAT
            ):
                raise _wrong(name, value, f"expected a number above 0, up to {_MAX_FLOAT:.0e}")
            sizes[field] = float(value)
        elif type(value) is not int or not 0 < value <= 1 << 20:
            raise _wrong(name, value, "expected a whole number above 0")
        else:
            sizes[field] = value
    shape = Shape(**sizes)
    _check(shape)
    return shape


def _of_teacher(teacher: GgufHeader) -> dict[str, Any]:
    found = {
        "hidden_size": teacher.embedding_length,
        "num_hidden_layers": teacher.block_count,
        "num_attention_heads": teacher.head_count,
        "num_key_value_heads": teacher.head_count_kv,
        "intermediate_size": _number(teacher, "feed_forward_length"),
        "max_position_embeddings": teacher.context_length,
        "rope_theta": _number(teacher, "rope.freq_base"),
        "rms_norm_eps": _number(teacher, "attention.layer_norm_rms_epsilon"),
    }
    defaults = {"rope_theta": 10_000.0, "rms_norm_eps": 1e-5}
    return {**defaults, **{name: value for name, value in found.items() if value is not None}}


def _number(header: GgufHeader, key: str) -> Any:
    value = header.metadata.get(f"{header.architecture}.{key}")
    return value if isinstance(value, int | float) else None


def _check(shape: Shape) -> None:
    if shape.width % (2 * shape.heads):
        raise _wrong(
            "hidden_size", shape.width, f"{shape.heads} heads of an even width do not divide it"
        )
    if shape.heads % shape.key_value_heads:
        raise _wrong(
            "num_key_value_heads", shape.key_value_heads, f"{shape.heads} heads cannot share them"
        )
    for name, value in (("hidden_size", shape.width), ("intermediate_size", shape.feed_forward)):
        if value % _BLOCK:
            raise _wrong(name, value, f"expected a multiple of {_BLOCK}")
    if shape.parameters > MAX_PARAMETERS:
        raise InvalidRequest(
            f"the student has {shape.parameters} parameters; at most {MAX_PARAMETERS} are trained",
            param="student",
        )


def _wrong(name: str, value: Any, why: str) -> InvalidRequest:
    shown = f"{name[:_SHOWN_CHARS]} is {_shown(value)}"
    return InvalidRequest(f"student: {shown}; {why}", param="student")


def _shown(value: Any) -> str:
    """A value, or what it is where a line does not hold it."""
    if isinstance(value, str):
        return repr(value[:_SHOWN_CHARS])
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)[:_SHOWN_CHARS]
