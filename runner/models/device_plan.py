"""Which of llama.cpp's devices has which layers of a model, and what of their memory that takes.

Pure functions over sizes. The layers that go to devices are the last ones, in the order of the
devices; the output counts as one more. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from runner.models.devices import Device
from runner.models.load_request import LoadRequest
from runner.models.memory_estimate import PROCESS_BYTES, DeviceBytes, MemoryEstimate
from runner.models.model_shape import ModelShape
from runner.types import SplitMode

GPU_HEADROOM_BYTES = 512 << 20  # a driver's context and library workspaces
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """layers: on devices altogether. devices: those that have some, and shares, in which
    proportions: of mode layer how many each has. cpu_moe_layers: the first ones, whose experts
    stay with the processor. taken: on each of devices. copied_bytes: of weights that are in the
    machine's memory too."""

    layers: int = 0
    mode: SplitMode = "layer"
    devices: tuple[Device, ...] = ()
    shares: tuple[float, ...] = ()
    cpu_moe_layers: int = 0
    taken: tuple[int, ...] = ()
    copied_bytes: int = 0

    def add_to(self, estimate: MemoryEstimate) -> MemoryEstimate:
        """The estimate with what lies on devices; each has buffers of its own."""
        if not self.devices:
            return estimate
        step_bytes = estimate.compute_bytes - PROCESS_BYTES
        return replace(
            estimate,
            weights_bytes=estimate.weights_bytes + self.copied_bytes,
            compute_bytes=estimate.compute_bytes + step_bytes * (len(self.devices) - 1),
            devices=tuple(
                DeviceBytes(device.name, device.key, size, device.shared)
                for device, size in zip(self.devices, self.taken, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be spread: the sizes of the layers and of the output, what of the layers their
    experts are, and what every device has besides; first_bytes: the first one more. usable: what
    may be taken of each device."""

    sizes: tuple[int, ...]
    experts: tuple[int, ...]
    step_bytes: int
    first_bytes: int
    usable: tuple[int, ...]

    def costs(self, layers: int, cpu_moe_layers: int) -> list[int]:
        """Of the layers on devices, the output included."""
        moved = [size if at < cpu_moe_layers else 0 for at, size in enumerate(self.experts)]
        moved += [0] * (len(self.sizes) - len(moved))
        costs = [size - less for size, less in zip(self.sizes, moved, strict=True)]
        return costs[len(costs) - layers :]


def plan_devices(
    shape: ModelShape,
    estimate: MemoryEstimate,
    request: LoadRequest,
    devices: Sequence[Device],
    free_bytes: int,
) -> DevicePlan:
    """As many layers on devices as fit, or num_gpu as it was asked for, spread so that each device
    is filled to the same degree, or as tensor_split says. Of a model of experts the processor
    keeps those of as few layers as necessary, before whole layers stay with it. free_bytes: of the
    machine, which shared devices use. request has been checked against devices."""
    if request.num_gpu == 0 or not devices:
        return DevicePlan()
    mode: SplitMode = request.split_mode or ("none" if request.main_gpu is not None else "layer")
    if mode == "none":
        devices = (devices[request.main_gpu or 0],)
    wanted = _wanted(shape, estimate, request, devices, free_bytes)
    every = shape.layers + 1
    most = every if request.num_gpu is None else min(request.num_gpu, every)
    split = _Split(wanted, mode, request.tensor_split if mode != "none" else ())
    layers, cpu_moe_layers = _fitting(split, shape, request, most)
    shares = split.shares(layers, cpu_moe_layers)
    if layers == 0 or shares is None:
        return DevicePlan()
    costs = wanted.costs(layers, cpu_moe_layers)
    used = [at for at, share in enumerate(shares) if share]
    taken = split.taken(costs, shares)
    extra = [wanted.step_bytes + (wanted.first_bytes if at == used[0] else 0) for at in used]
    return DevicePlan(
        layers,
        mode,
        tuple(devices[at] for at in used),
        tuple(shares[at] for at in used),
        cpu_moe_layers,
        tuple(taken[at] + more for at, more in zip(used, extra, strict=True)),
        shape.sizes.copied if shape.sizes is not None else 0,
    )


def _wanted(
    shape: ModelShape,
    estimate: MemoryEstimate,
    request: LoadRequest,
    devices: Sequence[Device],
    free_bytes: int,
) -> _Wanted:
    layers, step_bytes = shape.layers, estimate.compute_bytes - PROCESS_BYTES
    projector = 0 if shape.projector is None else shape.projector.weights_bytes
    weights, heads = estimate.weights_bytes - projector, sum(shape.heads_kv)
    if shape.sizes is None:
        own, experts, rest = [0] * (layers + 1), (0,) * layers, weights
    else:
        own, experts = [*shape.sizes.layers, shape.sizes.output], shape.sizes.experts
        # Of adapters and a draft model; the embedding stays with the processor
        rest = max(0, weights - shape.sizes.total)
    cache = [estimate.cache_bytes * count // heads if heads else 0 for count in shape.heads_kv]
    sizes = [size + rest // (layers + 1) for size in own]
    sizes = [size + cached for size, cached in zip(sizes, [*cache, 0], strict=True)]
    usable = [
        (min(device.free_bytes, free_bytes) if device.shared else device.free_bytes)
        - GPU_HEADROOM_BYTES
        - step_bytes
        for device in devices
    ]
    usable[0] -= projector
    if request.num_gpu is not None and max(usable) <= 0:
        usable = [device.free_bytes for device in devices]  # it was asked for all the same
    at_least_nothing = tuple(max(0, size) for size in usable)
    return _Wanted(tuple(sizes), experts, step_bytes, projector, at_least_nothing)


def _fitting(split: _Split, shape: ModelShape, request: LoadRequest, most: int) -> tuple[int, int]:
    """How many layers fit, of at most so many, and the experts of how many of them stay out."""
    with_experts = shape.layers if shape.experts else 0
    if request.num_cpu_moe is None:
        candidates: Sequence[int] = range(with_experts + 1)
    else:
        candidates = (min(request.num_cpu_moe, with_experts),)
    for cpu_moe_layers in candidates:
        if split.fits(most, cpu_moe_layers):
            return most, cpu_moe_layers
    if request.num_gpu is not None:  # as it was asked for
        return most, candidates[-1]
    found = next((n for n in range(most, 0, -1) if split.fits(n, candidates[-1])), 0)
    return found, candidates[-1]


@dataclass(frozen=True, slots=True)
class _Split:
    """How layers are spread. given: tensor_split."""

    wanted: _Wanted
    mode: SplitMode
    given: tuple[float, ...]

    def shares(self, layers: int, cpu_moe_layers: int) -> tuple[float, ...] | None:
        """The proportions of the devices; None: none of them has any memory."""
        usable = self.wanted.usable
        if self.mode == "row":
            return self.given or (tuple(map(float, usable)) if any(usable) else None)
        if self.given:
            return _in_proportion(self.given, layers)
        return _evenly_filled(self.wanted.costs(layers, cpu_moe_layers), usable)

    def taken(self, costs: Sequence[int], shares: Sequence[float]) -> list[int]:
        """What lies on each device of layers that cost so much."""
        if self.mode == "row":
            return [int(sum(costs) * share / sum(shares)) for share in shares]
        ends = [int(end) for end in accumulate(shares)]
        return [sum(costs[end - int(share) : end]) for end, share in zip(ends, shares, strict=True)]

    def fits(self, layers: int, cpu_moe_layers: int) -> bool:
        """Whether every device has the memory for its part."""
        shares = self.shares(layers, cpu_moe_layers)
        if shares is None:
            return False
        taken = self.taken(self.wanted.costs(layers, cpu_moe_layers), shares)
        return all(size <= most for size, most in zip(taken, self.wanted.usable, strict=True))


def _in_proportion(given: Sequence[float], layers: int) -> tuple[float, ...]:
    """How many of the layers each device has, as llama.cpp counts them."""
    ends, counts = [end / sum(given) for end in accumulate(given)], [0] * len(given)
    last = max(at for at, share in enumerate(given) if share)
    for layer in range(layers):
        at = next((at for at, end in enumerate(ends) if end > layer / layers), last)
        counts[at] += 1
    return tuple(map(float, counts))


def _evenly_filled(costs: Sequence[int], usable: Sequence[int]) -> tuple[float, ...] | None:
    """How many of the layers each device has, so that the fullest one is as empty as can be."""
    if not any(usable):
        return None
    low, high = 0.0, max(1.0, sum(costs) / max(usable)) * (1 + 1e-9)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum(_counts(costs, usable, middle)) == len(costs):
            high = middle
        else:
            low = middle
    return tuple(map(float, _counts(costs, usable, high)))


def _counts(costs: Sequence[int], usable: Sequence[int], degree: float) -> list[int]:
    """How many layers each device takes in turn when it is filled to a degree."""
    counts, at = [0] * len(usable), 0
    for device, size in enumerate(usable):
        left = size * degree
        while at < len(costs) and costs[at] <= left:
            left -= costs[at]
            at += 1
            counts[device] += 1
    return counts
