"""The two kinds of model files that this backend reads, as one: config, tensors, sizes.

Knows nothing of devices. A folder is a Hugging Face checkpoint, a file a GGUF.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from math import prod
from pathlib import Path

from registry.errors import RegistryError
from registry.formats.gguf import GgufHeader, read_header
from runner.backends.torch.config import (
    LOAD_QUANTIZATIONS,
    ConvertError,
    ModelConfig,
    create_model_config,
    read_model_config,
    text_part,
)
from runner.backends.torch.loading.embedded_checkpoint import EmbeddedCheckpoint, embedded_config
from runner.backends.torch.loading.gguf_config import ROPE_FACTORS, config_from_gguf
from runner.backends.torch.loading.gguf_tensors import GgufTensors
from runner.backends.torch.loading.memory_plan import InPlaceWeights, StoredWeights
from runner.backends.torch.loading.rounding import is_rounded
from runner.backends.torch.loading.safetensors import SafetensorsCheckpoint
from runner.backends.torch.loading.split_source import SplitSource
from runner.backends.torch.loading.weight_source import WeightSource
from runner.backends.torch.parallel.rank_layout import RankLayout
from runner.errors import ModelLoadFailed

_FLOAT_TYPES = ("F32", "F16")
_IN_PLACE_TYPES = ("F32", "F16", "BF16", "Q8_0")  # types of tensors


@dataclass(frozen=True, slots=True)
class ModelSource:
    """header: of a GGUF."""

    config: ModelConfig
    tensors: WeightSource
    weights: StoredWeights
    header: GgufHeader | None = None

    def part(self, layout: RankLayout, quantize: str | None = None) -> ModelSource:
        """What one rank of a layout has of it. quantize: what the maps of layers become. Raises
        ModelLoadFailed for a model that cannot be split so."""
        if layout.ranks == 1:
            return self
        layout.check(self.config)
        group = 1 if quantize is None else LOAD_QUANTIZATIONS[quantize].columns
        tensors = SplitSource(self.tensors, self.config, layout, group)
        share = _count(tensors) / max(1, _count(self.tensors))
        weights, placed = self.weights, self.weights.in_place
        own = StoredWeights(
            round(weights.elements * share),
            round(weights.size_bytes * share),
            weights.quantized,
            InPlaceWeights(
                round(placed.elements * share),
                round(placed.size_bytes * share),
                round(placed.maps * share),
            ),
        )
        return dataclasses.replace(self, tensors=tensors, weights=own)


def open_source(path: Path) -> ModelSource:
    """What lies at path. Raises ModelLoadFailed."""
    try:
        return _checkpoint(path) if path.is_dir() else _gguf(path)
    except (ConvertError, RegistryError) as error:
        raise ModelLoadFailed(f"{path.name}: {error}") from error


def _checkpoint(folder: Path) -> ModelSource:
    config = read_model_config(folder)
    # Checkpoints that also see have the decoder's tensors below names of their own.
    tensors = SafetensorsCheckpoint(
        folder, text_part if config.model_type == "gemma3_text" else None
    )
    elements = _count(tensors)
    quantized = config.quantization is not None
    in_place = InPlaceWeights()
    if not quantized:
        in_place = InPlaceWeights(elements, tensors.size_bytes, _maps(tensors))
    weights = StoredWeights(elements, tensors.size_bytes, quantized, in_place)
    return ModelSource(config, tensors, weights)


def _count(tensors: WeightSource) -> int:
    """The weights of all tensors."""
    return sum(_weights(name, tensors.shape(name)) for name in tensors.names)


def _maps(tensors: WeightSource) -> int:
    """The weights of the maps that are quantized while loading where that is asked for."""
    shapes = (
        tensors.shape(name)
        for name in tensors.names
        if name.endswith(".weight") and is_rounded(name.removesuffix(".weight"))
    )
    return sum(prod(shape) for shape in shapes if len(shape) > 1)


def _weights(name: str, shape: tuple[int, ...]) -> int:
    """How many weights a tensor holds: eight in each int32 of those of four bits, the zeros between
    those that are kept."""
    packed = {".qweight": 8, ".weight_packed": 8, ".sparse_values": 2, ".sparse_indices": 0}
    return prod(shape) * next((many for end, many in packed.items() if name.endswith(end)), 1)


def _kept(header: GgufHeader) -> ModelSource:
    config, tensors = create_model_config(embedded_config(header)), EmbeddedCheckpoint(header)
    weights = StoredWeights(_count(tensors), header.tensors_size_bytes, quantized=True)
    return ModelSource(config, tensors, weights, header)


def _gguf(path: Path) -> ModelSource:
    header = read_header(path)
    if header.keeps_checkpoint:
        return _kept(header)
    config, tensors = create_model_config(config_from_gguf(header)), GgufTensors(header)
    factors = {key: name for key, name in ROPE_FACTORS.items() if name in tensors.names}
    if factors and config.rope.scaling is not None:
        read = {key: tuple(tensors.read(name).tolist()) for key, name in factors.items()}
        rope = dataclasses.replace(config.rope, scaling={**config.rope.scaling, **read})
        config = dataclasses.replace(config, rope=rope)
    size_bytes = header.tensors_size_bytes
    quantized = header.quantization not in _FLOAT_TYPES
    plain = [tensor for tensor in header.tensors if tensor.type in _IN_PLACE_TYPES]
    in_place = InPlaceWeights(
        sum(one.elements for one in plain),
        sum(one.size_bytes for one in plain),
        _maps(tensors),
    )
    weights = StoredWeights(header.parameter_count, size_bytes, quantized, in_place)
    return ModelSource(config, tensors, weights, header)
