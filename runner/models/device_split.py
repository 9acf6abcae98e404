"""A model on several devices, or in several processes: whether that can be, and on which, told
before any is started. Knows numbers of models and devices, no processes.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelfile.parameters import MAX_RANKS
from runner.errors import InvalidRequest
from runner.models.devices import Device
from runner.models.load_request import LoadRequest
from runner.models.model_files import ModelFiles
from runner.models.model_shape import ModelShape
from runner.parallelism import check_split


def check_ranks(files: ModelFiles, shape: ModelShape, request: LoadRequest) -> None:
    """Raises InvalidRequest for a model that so many processes cannot compute together, with
    numbers."""
    ranks = request.ranks
    asked = "tensor_parallel" if request.tensor_parallel > 1 else "pipeline_parallel"
    if files.backend != "torch":
        if ranks > 1:
            value = max(request.tensor_parallel, request.pipeline_parallel)
            raise InvalidRequest(
                f"{asked}={value} is for the backend torch, and this model is loaded by"
                f" {files.backend}"
                + (
                    ", which spreads a model's layers over all GPUs by itself (main_gpu keeps it"
                    " on one); PARAMETER backend torch loads it by torch"
                    if files.backend == "llamacpp"
                    else ""
                ),
                param=asked,
            )
        if request.devices:
            raise InvalidRequest(
                f"devices={_listed(request.devices)} is for the backend torch; with"
                f" {files.backend} main_gpu says which GPU to use",
                param="devices",
            )
        return
    if ranks > 1 and files.embedding:
        raise InvalidRequest(
            f"{asked} is for models that generate text; this one computes embeddings", param=asked
        )
    if ranks > MAX_RANKS:
        raise InvalidRequest(
            f"tensor_parallel={request.tensor_parallel} times"
            f" pipeline_parallel={request.pipeline_parallel} are {ranks} processes, at most"
            f" {MAX_RANKS} are supported",
            param=asked,
        )
    refusal = check_split(
        heads=shape.heads,
        heads_kv=max(shape.heads_kv, default=1) or 1,
        layers=shape.layers,
        experts=shape.experts,
        tensor=request.tensor_parallel,
        pipeline=request.pipeline_parallel,
    )
    if refusal is not None:
        raise InvalidRequest(refusal, param=asked)


def check_devices(request: LoadRequest, devices: Sequence[Device]) -> None:
    """Raises InvalidRequest for what llama.cpp's devices cannot be asked for, with those there are.
    Where there is none, the processor computes whatever was asked for."""
    if not devices or request.num_gpu == 0:
        return
    there = f"llama.cpp can use {len(devices)} here: {', '.join(map(str, devices))}"
    number, shares = request.main_gpu or 0, request.tensor_split
    if number >= len(devices):
        raise InvalidRequest(
            f"main_gpu={number} is the device after the first {number}, and {there}",
            param="main_gpu",
        )
    if shares and len(shares) != len(devices):
        raise InvalidRequest(
            f"tensor_split={_listed(shares)} has {len(shares)} proportions, one for each device is"
            f" needed, and {there}",
            param="tensor_split",
        )
    if shares and not any(shares):
        raise InvalidRequest(
            f"tensor_split={_listed(shares)} leaves nothing to any device; num_gpu=0 computes with"
            " the processor",
            param="tensor_split",
        )
    unable = [str(device) for device in devices if not device.splits_rows]
    if request.split_mode == "row" and unable:
        raise InvalidRequest(
            f"split_mode=row is not possible on {', '.join(unable)}: its backend in this llama.cpp"
            " does not split matrices; use split_mode layer",
            param="split_mode",
        )


def chosen_gpus(request: LoadRequest, gpus: Sequence[Device]) -> tuple[Device, ...]:
    """The GPU of each process, of those that torch can use; none: the processor computes. Raises
    InvalidRequest when there are fewer."""
    if request.num_gpu == 0:
        if request.devices:
            raise InvalidRequest(
                f"devices={_listed(request.devices)} and num_gpu=0, which uses none of them;"
                " leave one of the two out",
                param="devices",
            )
        return ()
    if request.devices:
        if len(request.devices) != request.ranks:
            raise InvalidRequest(
                f"devices={_listed(request.devices)} are {len(request.devices)} GPUs for"
                f" {request.ranks} processes: tensor_parallel={request.tensor_parallel} times"
                f" pipeline_parallel={request.pipeline_parallel}",
                param="devices",
            )
        absent = [number for number in request.devices if number >= len(gpus)]
        if absent or len(set(request.devices)) < len(request.devices):
            raise InvalidRequest(
                f"devices={_listed(request.devices)}, but PyTorch can use {len(gpus)} GPUs"
                " here, numbered from 0, each of which can be named once",
                param="devices",
            )
        return tuple(gpus[number] for number in request.devices)
    if 0 < len(gpus) < request.ranks:
        raise InvalidRequest(
            f"tensor_parallel={request.tensor_parallel} times"
            f" pipeline_parallel={request.pipeline_parallel} need {request.ranks} GPUs, and PyTorch"
            f" can use {len(gpus)} here; num_gpu=0 computes with the processor",
            param="tensor_parallel",
        )
    return tuple(gpus[: request.ranks])


def _listed(numbers: Sequence[float]) -> str:
    return ",".join(f"{number:g}" for number in numbers)
