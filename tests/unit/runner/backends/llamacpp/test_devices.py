"""Devices are found, planned for and used as planned, by the real llama.cpp with devices that
stand in for GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.native import build
from registry.bundle import Bundle
from registry.store import Store
from runner.library.library import Library
from runner.models import devices as module
from runner.models import worker_process
from runner.models.device_plan import GPU_HEADROOM_BYTES
from runner.models.devices import Device, find_devices, uses_gpu
from runner.models.lease import AskedModel
from runner.models.manager import Manager
from runner.models.memory_plan import MemoryBudget, MemoryPlan, plan_memory
from runner.models.memory_tracker import MemoryTracker
from runner.settings import Settings
from runner.types import GenerateRequest, LoadPlan, Message, SamplingParams
from runner.worker.json_codec import to_json
from tests.unit.runner.models.test_model_files import bundle

HERE = Path(__file__).parent
EMBER = (HERE.parents[4] / "registry/builtin/ember/ember.gguf").read_bytes()
SETTINGS = Settings(num_threads=1, num_parallel=1, native_kernels=False)
SCRIPT = HERE / "fake_gpus.py"
LIMIT_S = 120
MIB = 1 << 20


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fake_gpus.cpp, compiled."""
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    try:
        recipe = build.RECIPES["llamacpp"]()
    except build.CompileError as error:
        pytest.skip(str(error))
    assert recipe is not None
    made = tmp_path_factory.mktemp("fake") / "fake_gpus.so"
    (base,) = recipe.link
    include = [f"-I{folder}" for folder in (*recipe.include, build.SOURCES)]
    link = [f"-L{base.parent}", "-lggml-base", "-lggml-cpu", "-lggml"]
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror"]
    command = [*compiler, *flags, *include, str(HERE / "fake_gpus.cpp"), "-o", str(made), *link]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return made


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(library: Path) -> Run:
    """What a process with such devices prints."""

    def ran(gpus: str, *arguments: str, **environment: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(library), gpus, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return ran


def device(name: str, mib: int, **fields: Any) -> dict[str, Any]:
    sizes = {"total_bytes": mib * MIB, "free_bytes": mib * MIB}
    more = {"description": "Fake", "id": None, "shared": False, "splits_rows": False}
    return {"name": name, **sizes, **more, **fields}


def test_the_devices_of_llamacpp_are_found_in_its_order(run: Run) -> None:
    two = run("GPU0:512,GPU1:256", "--probe")
    assert (two["gpu_offload"], two["torch_gpu"]) == (True, False)
    assert two["devices"] == [device("GPU0", 512), device("GPU1", 256)]


def test_an_integrated_gpu_shares_the_machines_memory_and_is_used_where_there_is_no_other(
    run: Run,
) -> None:
    alone = run("GPU0:512*", "--probe")["devices"]
    assert alone == [device("GPU0", 512, shared=True)]
    assert run("GPU0:512*,GPU1:64", "--probe")["devices"] == [device("GPU1", 64)]


def test_backends_that_split_matrices_are_known(run: Run) -> None:
    found = run("GPU0:512", "--probe", FAKE_GPUS_ROWS="1")["devices"]
    assert found == [device("GPU0", 512, splits_rows=True)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "home" / "models")
    yield opened
    opened.close()


def planned(model: Bundle, devices: tuple[Device, ...], **options: Any) -> MemoryPlan:
    asked = AskedModel.of(model, {"num_ctx": 512, **options}, SETTINGS)
    return plan_memory(asked.files, asked.shape, asked.request, MemoryBudget(8 << 30, devices))


def gpus(*mib: int) -> tuple[Device, ...]:
    """With so much memory beside the headroom."""
    sizes = [size * MIB + GPU_HEADROOM_BYTES for size in mib]
    return tuple(Device(f"GPU{at}", size, size) for at, size in enumerate(sizes))


def load(run: Run, plan: LoadPlan, count: int = 2) -> dict[str, Any]:
    names = ",".join(f"GPU{number}:4096" for number in range(count))
    return run(names, "--load", json.dumps(to_json(plan)))


def check_sizes(plan: MemoryPlan, found: dict[str, Any]) -> None:
    """What llama.cpp takes of each device is at most what was planned, and of weights and cache not
    much less."""
    step = plan.estimate.compute_bytes
    for each in plan.estimate.devices:
        sizes = [(kind, mib) for name, kind, mib in found["buffers"] if name == each.name]
        taken = sum(mib for _, mib in sizes) * MIB
        kept = sum(mib for kind, mib in sizes if kind != "compute") * MIB
        assert taken <= each.size_bytes, (plan, found)
        assert kept >= 0.9 * (each.size_bytes - step), (plan, found)


@pytest.mark.parametrize(
    ("mib", "options", "layers"),
    [
        ((400, 300), {}, {"GPU0": 4, "GPU1": 3}),
        ((400, 300), {"num_gpu": 3, "split_mode": "none"}, {"CPU": 4, "GPU0": 3}),
        *(
            pytest.param((400, 300), *of, marks=pytest.mark.long)
            for of in (
                ({"main_gpu": 1}, {"GPU1": 7}),
                ({"tensor_split": [1, 6]}, {"GPU0": 1, "GPU1": 6}),
                ({"num_gpu": 0}, {"CPU": 7}),
            )
        ),
    ],
)
def test_llamacpp_puts_layers_where_they_are_planned(
    mib: tuple[int, ...], options: dict[str, Any], layers: dict[str, int], run: Run, store: Store
) -> None:
    plan = planned(bundle(store, EMBER), gpus(*mib), **options)
    found = load(run, plan.load_plan)
    assert found["layers"] == layers
    check_sizes(plan, found)
    on_cpu = load(run, replace(plan.load_plan, gpu_layers=0, gpu_devices=()), count=0)
    assert found["text"] == on_cpu["text"]


@pytest.mark.parametrize("kept", [2, 1])
def test_experts_stay_in_the_machines_memory_as_planned(
    kept: int, run: Run, store: Store, model_file: Callable[..., Path]
) -> None:
    model = bundle(store, model_file(width=256, blocks=2, experts=16).read_bytes())
    whole, plan = planned(model, gpus(4096)), planned(model, gpus(4096), num_cpu_moe=kept)
    assert (plan.load_plan.gpu_layers, plan.load_plan.cpu_moe_layers) == (3, kept)
    found = load(run, plan.load_plan, 1)
    assert found["layers"] == {"GPU0": 3}
    check_sizes(plan, found)
    experts = kept * 3 * 16 * 256 * 512 * 4
    assert whole.estimate.gpu_bytes - plan.estimate.gpu_bytes == experts
    before = _model_mib(load(run, whole.load_plan, 1), "GPU0")
    assert before - _model_mib(found, "GPU0") == pytest.approx(experts / MIB, abs=0.1)


def _model_mib(found: dict[str, Any], name: str) -> float:
    return sum(float(mib) for at, kind, mib in found["buffers"] if (at, kind) == (name, "model"))


def test_a_device_that_is_gone_is_named(library: Path, store: Store) -> None:
    plan = planned(bundle(store, EMBER), gpus(400, 300)).load_plan
    command = [sys.executable, str(SCRIPT), str(library), "GPU0:4096", "--load"]
    done = subprocess.run(
        [*command, json.dumps(to_json(plan))], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode != 0
    assert "the device GPU1 is gone since the model was planned for it" in done.stderr


@pytest.fixture
def home(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a daemon whose workers have two devices."""

    def command(*arguments: str) -> list[str]:
        fake = [str(SCRIPT), str(library), "GPU0:700,GPU1:650"]
        return [sys.executable, "-I", *fake, *arguments]

    monkeypatch.setattr(worker_process, "worker_command", command)
    monkeypatch.setattr(module, "worker_command", command)
    monkeypatch.setattr(module, "_libraries", lambda: [library])
    return tmp_path / "home"


async def test_a_model_is_loaded_on_the_devices_that_were_found(home: Path, store: Store) -> None:
    settings = replace(SETTINGS, home=home)
    bundle(store, EMBER)
    manager = Manager(Library(store, settings, "test"), settings)
    try:
        async with manager.lease("m", {"num_ctx": 512, "split_mode": "layer"}) as lease:
            assert lease.plan.gpu_devices == ("GPU0", "GPU1")
            assert lease.notes == ()
            request = GenerateRequest(
                "x",
                SamplingParams(temperature=0.0),
                messages=(Message("user", "What can you do?"),),
                max_tokens=4,
            )
            assert await lease.worker.generate([request]).read()
            taken = manager._memory.budget_without(manager.present).devices
            assert [each.free_bytes for each in taken] == [700 * MIB, 650 * MIB]
    finally:
        await manager.close()


async def test_what_was_found_is_kept_until_another_build_or_boot(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = module._ask

    async def ask() -> Any:
        asked.append(1)
        return await real()

    monkeypatch.setattr(module, "_ask", ask)
    monkeypatch.setattr(module, "free_of_pci", dict)
    found = await find_devices(home / "state")
    assert [each.name for each in found.devices] == ["GPU0", "GPU1"]
    assert found.is_stale  # nothing but the driver tells what is free now
    assert await uses_gpu(home / "state")
    assert len(asked) == 2
    monkeypatch.setattr(module, "worker_command", lambda *words: [sys.executable, "-c",
        "print('{\"devices\": [], \"torch_gpu\": false}')"])  # fmt: skip
    assert (await find_devices(home / "other")).devices == ()
    assert (await find_devices(home / "other")).devices == ()
    assert len(asked) == 3
    monkeypatch.setattr(module.psutil, "boot_time", lambda: 1.0)
    await find_devices(home / "other")
    assert len(asked) == 4
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    await find_devices(home / "other")
    assert len(asked) == 5


async def test_a_probe_that_fails_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "worker_command", lambda *_: [sys.executable, "-c", "x"])
    monkeypatch.setattr(module, "_libraries", lambda: [HERE / "fake_gpus.cpp"])
    assert (await find_devices(tmp_path)).devices == ()
    assert not os.listdir(tmp_path)
    tracker = MemoryTracker(Settings(home=tmp_path))
    await tracker.probe()
    assert tracker.budget([]).devices == ()


async def test_a_build_without_libraries_for_devices_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = ["libggml.so", "libggml-base.so.0", "libggml-cpu-sapphirerapids.so", "ggml.dll"]
    asked = []

    async def ask() -> None:
        asked.append(1)

    monkeypatch.setattr(module, "_ask", ask)
    monkeypatch.setattr(module, "gpu_memory", list)
    monkeypatch.setattr(module, "_key", str)
    for name in [*processor, "libggml-vulkan.so", "libggml-metal.dylib", "ggml-cuda.dll"]:
        monkeypatch.setattr(module, "_libraries", lambda name=name: [Path(name)])
        assert await find_devices(tmp_path) == module.ProbeFacts()
    assert len(asked) == 3
