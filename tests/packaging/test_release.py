"""The release of `make dist`: what is in it, and that ember answers on lesser processors with it.

`make try-release`. The first time llama.cpp is compiled, for many minutes; later it is taken from
build/dist.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernels.native import LEVELS
from tests.packaging.conftest import REPOSITORY, run

pytestmark = pytest.mark.slow
X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="levels of x86")
# What a system without a compiler has: manylinux's list, as far as the libraries use it
OF_SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2"}

# ggml's variants, best first: what a processor lacks for the one before, in the words of
# masked_cpuid.c, and hearth's kernels on what is left
VARIANTS = {
    "sapphirerapids": ("", "avx512bf16"),
    "zen4": ("7.0.d.16 7.0.d.18 7.0.d.19", "avx512bf16"),  # AMX
    "cascadelake": ("7.1.a.5", "avx512"),  # AVX512_BF16
    "skylakex": ("7.0.c.b", "avx2"),  # AVX512_VNNI
    "alderlake": ("7.0.b.10 7.0.b.11 7.0.b.1c 7.0.b.1e 7.0.b.1f", "avxvnni"),  # AVX512
    "haswell": ("7.1.a.4", "avx2"),  # AVX_VNNI
    "sse42": ("1.0.c.1c 1.0.c.c 1.0.c.1d 7.0.b.5 7.0.b.8", None),  # AVX, FMA, F16C, AVX2, BMI2
}
# Generates from ember as install.sh does, and tells the libraries that this has loaded
SMOKE = """
import json, sys
from pathlib import Path
import kernels.native as native
import registry.builtin.ember as ember
if sys.argv[1]:
    native._CPUINFO = Path(sys.argv[1])
from runner.worker.smoke import smoke
status = smoke(f"{ember.__path__[0]}/ember.gguf", 8)
maps = Path("/proc/self/maps").read_text().split()
print(json.dumps(sorted({Path(word).name for word in maps if word.endswith(".so")})))
sys.exit(status)
"""


@pytest.fixture(scope="module")
def installed(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that install.sh makes of the release."""
    home = tmp_path_factory.mktemp("home")
    environ = {
        "HOME": str(home),
        "HEARTH_WHEEL_INDEX": str(released),
        "HEARTH_WHEELS": str(home / "wheels"),
    }
    said = run("sh", REPOSITORY / "install.sh", "--without-torch", env=environ)
    assert "kept: the wheel of HEARTH_WHEEL_INDEX" in said
    assert "compiling llama.cpp" not in said
    return home / ".local/share/hearth/venv"


def _wheel(released: Path, name: str) -> Path:
    (path,) = released.glob(f"{name}-*-manylinux_*_{os.uname().machine}.whl")
    return path


def test_sums_are_those_of_all_files(released: Path) -> None:
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=released)
    listed = {line.split()[1] for line in (released / "SHA256SUMS").read_text().splitlines()}
    assert {path.name for path in released.iterdir()} == listed | {"SHA256SUMS"}
    assert {"get.sh", "hearth.cdx.json", _wheel(released, "llama_cpp_python").name} <= listed
    assert len([name for name in listed if name.startswith("hearth-")]) == 3


def test_wheels_need_nothing_that_a_machine_without_a_compiler_lacks(
    released: Path, tmp_path: Path
) -> None:
    held = []
    for name in ("hearth", "llama_cpp_python"):
        with zipfile.ZipFile(_wheel(released, name)) as wheel:
            wheel.extractall(tmp_path)
            held += [entry for entry in wheel.namelist() if re.search(r"\.so(\.\d+)*$", entry)]
    assert {f"kernels/native/lib/llamacpp-{level}.so" for level in _levels()} <= set(held)
    assert {f"kernels/native/lib/torch-{level}.so" for level in _levels()} <= set(held)
    provided = {Path(entry).name for entry in held} | OF_SYSTEM
    for entry in held:
        shown = run("readelf", "-d", tmp_path / entry)
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", shown))
        assert needed <= provided, entry
        places = re.findall(r"\(RUNPATH\).*\[(.*)\]", shown)
        assert all(word.startswith("$ORIGIN") for place in places for word in place.split(":"))


def _levels() -> list[str]:
    return [name for name, level in LEVELS.items() if level.machine == os.uname().machine]


def test_list_of_components_names_what_the_wheels_carry(released: Path) -> None:
    document = json.loads((released / "hearth.cdx.json").read_text())
    versions = {one["name"]: one.get("version") for one in document["components"]}
    assert versions["llama-cpp-python"]
    assert versions["libgomp"]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that hides features of the processor."""
    library = tmp_path_factory.mktemp("masked") / "masked.so"
    source = Path(__file__).with_name("masked_cpuid.c")
    run("cc", "-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source)
    tried = subprocess.run(["true"], env=os.environ | {"LD_PRELOAD": str(library)}, check=False)
    if tried.returncode == 77:
        pytest.skip("this processor, or its virtual machine, cannot stop CPUID")
    return library


def _cpuinfo(folder: Path, level: str | None) -> Path:
    path = folder / "cpuinfo"
    features = LEVELS[level].features if level else ("sse4_2",)
    path.write_text(f"flags\t\t: {' '.join(features)}\n")
    return path


def _smoke(
    installed: Path, cpuinfo: Path | str = "", env: Mapping[str, str] = {}, emulator: str = ""
) -> set[str]:
    """The libraries with which ember answered."""
    command = [*emulator.split(), str(installed / "bin/python"), "-P", "-c", SMOKE, str(cpuinfo)]
    answer, libraries = run(*command, env=env, cwd=installed).splitlines()
    assert json.loads(answer)["text"].strip()
    found = set(json.loads(libraries))
    kernels = [name for name in found if name.startswith("llamacpp-")]
    assert json.loads(answer)["kernels"] == bool(kernels)
    return {name for name in found if name.startswith(("libggml-cpu-", "llamacpp-"))}


@X86
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_processor_gets_the_best_of_the_variants_that_it_can_run(
    installed: Path, masked: Path, tmp_path: Path, variant: str
) -> None:
    own = _smoke(installed)
    (best,) = (name for name in own if name.startswith("libggml-cpu-"))
    names = list(VARIANTS)
    if names.index(variant) < names.index(best.removeprefix("libggml-cpu-").removesuffix(".so")):
        pytest.skip(f"this processor is one for {best}")
    lacking = " ".join(VARIANTS[name][0] for name in names[: names.index(variant) + 1])
    level = VARIANTS[variant][1]
    hidden = {"LD_PRELOAD": str(masked), "MASKED_CPUID": lacking}
    found = _smoke(installed, _cpuinfo(tmp_path, level), hidden)
    assert found == {f"libggml-cpu-{variant}.so"} | ({f"llamacpp-{level}.so"} if level else set())


@X86
@pytest.mark.parametrize(
    ("processor", "variant", "level"),
    [("Nehalem", "sse42", None), ("Haswell", "haswell", "avx2")],
)
def test_emulated_processor_that_ends_what_it_cannot_run_gets_an_answer(
    installed: Path, tmp_path: Path, processor: str, variant: str, level: str | None
) -> None:
    """QEMU 7.2 and newer know AVX2, and no AVX-512."""
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None:
        pytest.skip("qemu-user is not installed")
    command = f"{emulator} -cpu {processor}"
    found = _smoke(installed, _cpuinfo(tmp_path, level), emulator=command)
    assert found == {f"libggml-cpu-{variant}.so"} | ({f"llamacpp-{level}.so"} if level else set())
