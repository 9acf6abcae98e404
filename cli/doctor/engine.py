"""The engines: llama.cpp, hearth's kernels in it, PyTorch. Checked in child processes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cli.doctor.child import ChildFailed, ask
from cli.doctor.finding import Finding, ok, problem, warning
from cli.render import size
from runner.settings import Settings

_INSTALL = "./install.sh"
_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def check_engine(settings: Settings) -> Iterator[Finding]:
    """Whether llama.cpp computes here, with which kernels, and what speaks against better ones."""
    try:
        probed = ask("runner.worker", "--probe")
        if "error" in probed:
            raise ChildFailed(str(probed["error"]))
        model = Path(*_folder("registry.builtin.ember"), "ember.gguf")
        tried = ask("runner.worker", "--smoke", str(model), "--tokens", "2")
    except ChildFailed as failure:
        yield problem("llama.cpp", f"a token of ember cannot be computed: {failure}", _INSTALL)
        return
    offload, has_gpu = bool(probed["gpu_offload"]), any(device.exists() for device in _GPU_DEVICES)
    text = f"{probed['version']}, llama-cpp-python {_version('llama-cpp-python')}, computes"
    if has_gpu and not offload:
        yield warning("llama.cpp", f"{text} on the processor: it was built without the GPU",
                      f"CMAKE_ARGS=-DGGML_CUDA=on {_INSTALL}")  # fmt: skip
    else:
        yield ok("llama.cpp", f"{text} on {_devices(probed) if offload else 'the processor'}")
    yield from _kernels(settings, offload, bool(tried["kernels"]))


def _devices(probed: dict[str, Any]) -> str:
    """Those that llama.cpp would use, with their memory."""
    shown = [
        f"{each['name']} ({each['description']}), {size(each['free_bytes'])} of"
        f" {size(each['total_bytes'])} free{', shared with the processor' * each['shared']}"
        for each in probed["devices"]
    ]
    return "; ".join(shown) or "GPUs, but finds none now"


def _kernels(settings: Settings, offload: bool, run: bool) -> Iterator[Finding]:
    try:
        facts = ask("kernels.native", "--facts")
    except ChildFailed as failure:
        yield warning("kernels", f"they cannot be checked: {failure}", _INSTALL)
        return
    level, lacking = facts["level"], _lacking(facts["better"])
    if not settings.native_kernels:
        yield warning("kernels", "HEARTH_NATIVE_KERNELS=0: llama.cpp's own run, slower",
                      "unset HEARTH_NATIVE_KERNELS")  # fmt: skip
    elif offload:
        yield ok("kernels", "those of the GPU")
    elif level is None:
        text = "llama.cpp's own: hearth's need AVX2 or 64-bit ARM, and Linux"
        yield ok("kernels", text + lacking)
    elif run:
        yield ok("kernels", f"hearth's for {level}{lacking}")
    elif "llamacpp" in facts["libraries"]:
        text = f"llama.cpp's own: hearth's for {level} were made for another build of it"
        yield warning("kernels", text, _INSTALL)
    else:
        text = f"llama.cpp's own, slower: hearth's for {level} were not compiled"
        mend = _INSTALL if facts["compiler"] else f"install GCC (apt install g++), then {_INSTALL}"
        yield warning("kernels", text, mend)


def _lacking(better: dict[str, list[str]]) -> str:
    """Why none of the better levels runs."""
    reasons = [f"{name} needs {', '.join(features)}" for name, features in better.items()]
    return f"; the processor has no better ones ({'; '.join(reasons)})" if reasons else ""


def check_torch(_: Settings) -> Iterator[Finding]:
    """Which PyTorch. It is not imported, which takes seconds."""
    found = _version("torch")
    if found is None or find_spec("torch") is None:
        yield ok("torch", "not installed; models with PARAMETER backend torch need it "
                          "(./install.sh --with-torch)")  # fmt: skip
    elif "+cpu" in found and any(device.exists() for device in _GPU_DEVICES):
        yield warning("torch", f"{found} has no CUDA support, but this machine has a GPU",
                      "./install.sh --with-torch, without an index of CPU wheels")  # fmt: skip
    else:
        yield ok("torch", found)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _folder(package: str) -> tuple[Any, ...]:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ChildFailed("ember is not installed")
    return (spec.submodule_search_locations[0],)
