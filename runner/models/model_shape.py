"""The numbers of a model from which its memory is computed, read from its header.

Knows the keys of GGUF metadata. Loads nothing. Sizes in bytes, lengths in tokens.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from modelfile.build import ECHO_ARCHITECTURE
from modelfile.cache_types import cache_bytes
from modelfile.load_quantization import loaded_bytes, quantized_tensors
from registry.bundle import Bundle
from registry.formats.gguf import GgufHeader, LazyArray
from runner.errors import ModelInvalid
from runner.models.attention_window import attention_window
from runner.models.layer_sizes import LayerSizes, layer_sizes
from runner.models.model_files import draft_model, runs_on_torch
from runner.models.vision import ProjectorShape, projector_of, projector_shape

_FLOAT_BYTES = 4
# Of requests, upper estimates: four recordings of an hour; sentences of 250 phonemes
TRANSCRIBING_BYTES = 800 << 20
SPEAKING_BYTES = 500 << 20
_TORCH_BYTES = 4  # of a weight on a CPU, where it computes GGUF files in float32
# Queries, keys and values are one map, whose adapters lie in one matrix with zeros between them
_ADAPTER_FILL = 3


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model in numbers. heads_kv: one number for each layer, 0 where a
    layer has no cache of keys and values. weights_bytes: with those of the adapters. draft: of the
    model that proposes tokens, loaded beside it; projector likewise. stored_bytes: what torch has
    of the weights on a GPU, where that is not weights_bytes. work_bytes: what requests take beside
    the cache and the buffers of a step. original_context: beyond which positions are rotated in
    another way; 0: in one way only. experts: of a layer; 0: it has none. sizes: of the
    weights of the model's own file; None: all its layers count as equal. window: of attention, in
    tokens, for those of window_layers; 0: there are none."""

    weights_bytes: int
    context_length: int
    vocabulary: int
    embedding_length: int
    feed_forward_length: int
    heads: int
    heads_kv: tuple[int, ...]
    key_length: int
    value_length: int
    draft: ModelShape | None = None
    projector: ProjectorShape | None = None
    stored_bytes: int | None = None
    work_bytes: int = 0
    original_context: int = 0
    experts: int = 0
    sizes: LayerSizes | None = None
    window: int = 0
    window_layers: tuple[bool, ...] = ()

    @property
    def all_weights_bytes(self) -> int:
        """With those of the draft model and the projector."""
        others = (self.draft, self.projector)
        return self.weights_bytes + sum(item.weights_bytes for item in others if item is not None)

    @property
    def layers(self) -> int:
        """The number of blocks."""
        return len(self.heads_kv)

    def cache_bytes_per_token(self, cache_type: str) -> float:
        """Keys and values of one token over all layers."""
        own = cache_bytes(cache_type, sum(self.heads_kv), self.key_length + self.value_length)
        return own if self.draft is None else own + self.draft.cache_bytes_per_token(cache_type)

    def window_bytes_per_token(self, cache_type: str) -> float:
        """Of them, those of the layers with an attention window; none of the draft model."""
        layers = zip(self.heads_kv, self.window_layers, strict=False)
        heads = sum(heads for heads, window in layers if window)
        return cache_bytes(cache_type, heads, self.key_length + self.value_length)


def model_shape(
    bundle: Bundle, backend: str | None = None, quantize: str | None = None
) -> ModelShape:
    """The numbers of the memory plan. backend: the requested one; quantize: what the weights become
    while loading. Raises ModelInvalid when the header lacks one."""
    if bundle.header.is_speech:
        return _speech_shape(bundle.header)
    own = _shape(bundle.header, _weights_bytes(bundle, backend, quantize))
    if runs_on_torch(bundle, backend):
        own = dataclasses.replace(own, stored_bytes=_stored_bytes(bundle, quantize))
    own = dataclasses.replace(own, projector=projector_shape(projector_of(bundle, backend)))
    draft = draft_model(bundle, backend)
    if draft is None:
        return own
    return dataclasses.replace(own, draft=_shape(draft.header, draft.size_bytes))


def _speech_shape(header: GgufHeader) -> ModelShape:
    """A CPU computes with floats of 32 bits, unless the weights are whole numbers."""
    floats = header.quantization in ("F32", "F16", "BF16")
    weights = _FLOAT_BYTES * header.parameter_count if floats else header.file_size_bytes
    hears = header.architecture == "whisper"
    return ModelShape(
        weights_bytes=weights,
        context_length=header.context_length or 1,
        vocabulary=header.vocabulary_size or 0,
        embedding_length=header.embedding_length or 0,
        feed_forward_length=0,
        heads=1,
        heads_kv=(0,),
        key_length=0,
        value_length=0,
        work_bytes=header.file_size_bytes + (TRANSCRIBING_BYTES if hears else SPEAKING_BYTES),
    )


def _shape(header: GgufHeader, weights_bytes: int) -> ModelShape:
    if header.architecture == ECHO_ARCHITECTURE:
        context = header.context_length or 4096
        return ModelShape(weights_bytes, context, 512, 1, 1, 1, (0,), 1, 1)
    embedding = _given(header.embedding_length, "embedding_length", header)
    layers = _given(header.block_count, "block_count", header)
    window, window_layers = attention_window(header)
    return ModelShape(
        weights_bytes=weights_bytes,
        context_length=_given(header.context_length, "context_length", header),
        vocabulary=header.vocabulary_size or 0,
        embedding_length=embedding,
        feed_forward_length=_feed_forward(header) or 4 * embedding,
        heads=header.head_count or 1,
        heads_kv=header.head_counts_kv or (0,) * layers,
        key_length=header.key_length or 0,
        value_length=header.value_length or 0,
        original_context=_original_context(header),
        experts=header.expert_count or 0,
        sizes=layer_sizes(header.tensors, layers),
        window=window,
        window_layers=window_layers,
    )


def _original_context(header: GgufHeader) -> int:
    if not any("rope_factors_long" in tensor.name for tensor in header.tensors):
        return 0
    value = header.architecture_value("rope.scaling.original_context_length")
    return value if isinstance(value, int) else 0


def _weights_bytes(bundle: Bundle, backend: str | None, quantize: str | None) -> int:
    if quantize is not None:
        own = _quantized_bytes(bundle.header, quantize, _TORCH_BYTES)
        return own + _TORCH_BYTES * _adapter_weights(bundle)
    if runs_on_torch(bundle, backend):
        return _TORCH_BYTES * (bundle.header.parameter_count + _adapter_weights(bundle))
    return bundle.model_size_bytes + sum(item.size_bytes for item in bundle.adapters)


def _stored_bytes(bundle: Bundle, quantize: str | None) -> int:
    """Of torch on a GPU: packed weights as they are, adapters in 16 bits."""
    header = bundle.header
    own = header.tensors_size_bytes
    if quantize is not None:
        own = _quantized_bytes(header, quantize, 2)
    return own + 2 * _adapter_weights(bundle)


def _quantized_bytes(header: GgufHeader, kind: str, float_bytes: int) -> int:
    """Of weights that are quantized while loading, and of the largest of them as floats: one at a
    time is there twice."""
    largest = max((tensor.elements for tensor in quantized_tensors(header)), default=0)
    return loaded_bytes(header, kind, float_bytes) + largest * _FLOAT_BYTES


def _adapter_weights(bundle: Bundle) -> int:
    return _ADAPTER_FILL * sum(item.header.parameter_count for item in bundle.adapters)


def _given(value: int | None, key: str, header: GgufHeader) -> int:
    if value is None:
        raise ModelInvalid(f"the model file has no {header.architecture}.{key}")
    return value


def _feed_forward(header: GgufHeader) -> int | None:
    value = header.architecture_value("feed_forward_length")
    if isinstance(value, LazyArray):
        value = tuple(value.load())
    return max(value, default=None) if isinstance(value, tuple) else value
