"""The ways into this backend for a process that is one of several with one model."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from runner import __version__
from runner.backends.backend import Leader
from runner.backends.torch.loading.loader import create_executor, load_model
from runner.backends.torch.loading.memory_plan import device_for
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.parallel.communication import Ranks
from runner.backends.torch.parallel.communication import join as join_ranks
from runner.backends.torch.parallel.rank_executor import follow as follow_steps
from runner.backends.torch.parallel.rank_layout import RankLayout
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan

_LOOPBACK = ("lo", "lo0")


def version() -> str:
    """What all processes of a model must have the same of."""
    return f"hearth {__version__} with PyTorch {torch.__version__}"


def join(
    plan: LoadPlan, rank: int, store: str, host: str | None = None, listener: int | None = None
) -> Ranks:
    """Meet the other processes of plan, see communication.join. host: the address of this machine
    in their network; None: all are on this machine. Opens sockets and starts threads. Raises
    ModelLoadFailed."""
    layout = RankLayout(plan.tensor_parallel, plan.pipeline_parallel, rank)
    device = torch.device(device_for(plan, rank))
    if device.type == "cuda" and device.index >= torch.cuda.device_count():
        raise ModelLoadFailed(
            f"process {rank} of the model wants GPU {device.index}, but there are"
            f" {torch.cuda.device_count()}, numbered from 0"
        )
    if name := _interface(host):
        # What gloo listens on; by itself it chooses the address of the machine's name
        os.environ["GLOO_SOCKET_IFNAME"] = name
    try:
        return join_ranks(layout, store, device, listener)
    except RuntimeError as error:
        raise ModelLoadFailed(
            f"process {rank} of {layout.ranks} could not join the others: {error}"
        ) from error


def _interface(host: str | None) -> str | None:
    """The name of the interface with this address. Raises ModelLoadFailed where there is none."""
    if host is None or ipaddress.ip_address(host).is_loopback:
        return next((name for _, name in socket.if_nameindex() if name in _LOOPBACK), None)
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == host for each in addresses):
            return name
    raise ModelLoadFailed(f"no interface of this machine has the address {host}")


def follow(plan: LoadPlan, ranks: Ranks, leader: Leader, loaded: Callable[[], None]) -> None:
    """Load this process's part, call loaded, and compute what the first process says until it is
    gone. Raises ModelLoadFailed, what leader.receive raises and what computing raises."""
    source = open_source(Path(plan.path))
    part = load_model(plan, source, lambda _share: None, ranks)
    with torch.inference_mode():
        executor = create_executor(plan, part)
    loaded()
    follow_steps(executor, leader)
