"""A model file of floats made into a checkpoint of GPTQ or AWQ: config.json and safetensors, as
other programs publish them; or into one of 2:4 sparsity, in names of its own.

Owns what is refused and what goes into which file. The tensors are float16 beside the packed ones,
as those formats' programs expect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file

from modelfile.convert.config import read_config
from modelfile.errors import ConvertError
from registry.errors import shown
from registry.formats.gguf import GgufHeader
from runner.backends.host_sampling.threads import threads_for
from runner.backends.torch.architectures import model_class
from runner.backends.torch.layers.decoder import Decoder
from runner.backends.torch.layers.experts import ListedExperts
from runner.backends.torch.loading.gguf_config import ROPE_FACTORS, config_from_gguf
from runner.backends.torch.loading.source import ModelSource, open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.errors import InvalidRequest
from runner.jobs.measured_model import DEFAULT_CONTEXT
from runner.jobs.torch.calibrated_loader import CalibratedLoader
from runner.jobs.torch.calibration import Calibration, Method, QuantizedMap, quantize_layers
from runner.jobs.torch.evaluation import chunks_of
from runner.jobs.torch.int4_files import awq_tensors, gptq_tensors
from runner.jobs.torch.sparsity import SparseNumbers, sparse_tensors

Tensor = Any
GROUPS: Final = (128, 64, 32)  # the largest that divides all rows is taken
MAX_CHUNKS: Final = 128
_PER_WORD: Final = 8
_CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}


@dataclass(frozen=True, slots=True)
class PackedCheckpoint:
    """A checkpoint to be made of the model file at path by a text, in an empty folder. text: None
    for a method that needs none. config: the config.json that the model came with."""

    path: Path
    method: Method
    text: str | None
    folder: Path
    config: Path | None = None

    def write(self, report: Callable[[int, int], None]) -> dict[str, Path]:
        """Quantize; gives the files by their names. report: layers done, of all. Raises
        ConvertError, InvalidRequest, ModelLoadFailed, OSError."""
        source = open_source(self.path)
        torch.set_num_threads(threads_for(source.weights.size_bytes))
        assert source.header is not None
        values = published_config(source.header, self.config)
        context = min(DEFAULT_CONTEXT, source.config.context_length)
        place = WeightPlacement(torch.float32, torch.device("cpu"), context, native=False)
        loader = CalibratedLoader(source.tensors, place)
        with torch.inference_mode():
            model = _checked(model_class(source.config.model_type)(source.config, loader), loader)
            group = _group(loader) if self.method in ("gptq", "awq") else 8
            wanted = Calibration(self.method, group, self._chunks(context))
            quantized: set[str] = set()
            files: dict[str, Path] = {}
            layers = quantize_layers(model, loader.observed, source.config.shape, wanted, report)
            for number, maps in enumerate(layers):
                quantized.update(found.name for found in maps)
                self._save(files, number + 1, _packed(maps, self.method))
            self._save(files, 0, _others(source, loader, quantized))
        values["quantization_config"] = _described(self.method, wanted.group)
        files["config.json"] = self.folder / "config.json"
        files["config.json"].write_text(json.dumps(values, indent=2), "utf-8")
        return files

    def _chunks(self, context: int) -> list[Any]:
        if self.text is None:
            return []
        chunks = chunks_of(self.path, self.text, context)
        return chunks[:: -(-len(chunks) // MAX_CHUNKS)]

    def _save(self, files: dict[str, Path], number: int, tensors: Mapping[str, Tensor]) -> None:
        name = f"model-{number:05}.safetensors"
        files[name] = self.folder / name
        save_file(dict(tensors), files[name], metadata={"format": "pt"})


def published_config(header: GgufHeader, config: Path | None) -> dict[str, Any]:
    """The config.json of the checkpoint to be: the one that the model came with, or what the model
    file says. Raises ConvertError where that does not say how positions turn."""
    built = dict(config_from_gguf(header).values)
    kind = built["model_type"]
    given = dict(read_config({"config.json": config}).values) if config is not None else {}
    if given.get("model_type") in (kind, "mistral"):
        built = given
    elif any(tensor.name in ROPE_FACTORS.values() for tensor in header.tensors):
        raise ConvertError(
            "the model file has factors of its rope, which config.json writes in another way:"
            " create the model from its folder of safetensors"
        )
    built.setdefault("architectures", [_CLASSES.get(kind, kind)])
    return {**built, "torch_dtype": "float16", "dtype": "float16"}


def _checked(model: object, loader: CalibratedLoader) -> Decoder:
    """The model, if it can be quantized by a text. Raises InvalidRequest, ConvertError."""
    if not isinstance(model, Decoder):
        raise InvalidRequest("an encoder cannot be quantized by a text that it continues")
    if any(
        isinstance(getattr(layer, "feed_forward", None), ListedExperts) for layer in model.layers
    ):
        raise InvalidRequest(
            "a mixture of experts cannot be quantized by a text: most experts see too little of it"
        )
    for linear in loader.observed.maps:
        for name, weight in zip(linear.names, linear.weights, strict=True):
            for size in weight.shape:
                if size % _PER_WORD:
                    raise ConvertError(
                        f"{shown(name)} is {list(weight.shape)}; packed weights need"
                        f" multiples of {_PER_WORD}"
                    )
    return model


def _group(loader: CalibratedLoader) -> int:
    widths = {linear.weights[0].shape[1] for linear in loader.observed.maps}
    for group in GROUPS:
        if not any(width % group for width in widths):
            return group
    raise ConvertError(
        f"rows of {', '.join(map(str, sorted(widths)))} weights have no groups of"
        f" {', '.join(map(str, GROUPS))}"
    )


def _packed(maps: list[QuantizedMap], method: Method) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for one in maps:
        tensors = _tensors(one, method)
        found |= {f"{one.name}.{end}": tensor for end, tensor in tensors.items()}
        if one.bias is not None:
            found[f"{one.name}.bias"] = _half(one.name, one.bias)
    return found


def _tensors(found: QuantizedMap, method: Method) -> dict[str, Tensor]:
    """By what follows the map's name."""
    if isinstance(found.weight, SparseNumbers):
        tensors = sparse_tensors(found.weight)
        return tensors | {"sparse_values": _half(found.name, tensors["sparse_values"])}
    return gptq_tensors(found.weight) if method == "gptq" else awq_tensors(found.weight)


def _others(
    source: ModelSource, loader: CalibratedLoader, quantized: set[str]
) -> dict[str, Tensor]:
    """What is not quantized; norms as they are now."""
    norms = {f"{name}.weight": norm.weight for name, norm in loader.observed.norms.items()}
    names = [
        name
        for name in source.tensors.names
        if name.rpartition(".")[0] not in quantized and name not in ROPE_FACTORS.values()
    ]
    return {
        name: _half(name, norms[name] if name in norms else source.tensors.read(name))
        for name in names
    }


def _half(name: str, tensor: Tensor) -> Tensor:
    half = tensor.to(torch.float16, copy=True).contiguous()
    if not bool(half.isfinite().all()):
        raise ConvertError(f"tensor {shown(name)} has numbers that float16 does not have")
    return half


def _described(method: Method, group: int) -> dict[str, Any]:
    """quantization_config."""
    if method in ("wanda", "magnitude"):
        return {"quant_method": "sparse-2:4", "chosen_by": method}
    common: dict[str, Any] = {"quant_method": method, "bits": 4, "group_size": group}
    if method == "awq":
        return common | {"zero_point": True, "version": "gemm", "modules_to_not_convert": None}
    return common | {
        "desc_act": False,
        "sym": False,
        "damp_percent": 0.01,
        "true_sequential": False,
        "checkpoint_format": "gptq",
        "lm_head": False,
    }
