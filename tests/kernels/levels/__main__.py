"""`python -m tests.kernels.levels`: the cases (cases.cpp) must come to the same bits at every
level that runs here, 64-bit ARM's in an emulator.

ARM's need a cross compiler and QEMU (Debian: g++-aarch64-linux-gnu qemu-user). `--levels avx2 i8mm`
takes those only. Exit status 1: bits differ; 2: a compiler or an emulator is missing.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kernels import native
from kernels.native import build

CASES = Path(__file__).parent / "cases.cpp"
REPOSITORY = CASES.parents[3]
SOURCES = ("matmul.cpp", "attention.cpp", "linear.cpp", "decode.cpp", "lora.cpp")
_FLAGS = (*build.LANGUAGE_FLAGS, "-O3", "-w", f"-I{REPOSITORY}")
CROSS_COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
# Of QEMU: it has what the level needs, and of the lesser ones no more than that
EMULATED_CPUS = {"i8mm": "max", "dotprod": "neoverse-n1", "neon": "cortex-a72"}
# Sums of as many lanes have the same bits; what is in a model of block formats has them at every
# level
EVERYWHERE = ("matmul ", "attention ")
WIDE = frozenset({"amx", "avx512bf16", "avx512"})
# They multiply numbers of BF16 in pairs
BF16_PAIRS = frozenset({"amx", "avx512bf16"})


def missing_tools() -> list[str]:
    """Programs that ARM's levels need and this machine has not."""
    if platform.machine() == "aarch64":
        return []
    return [name for name in (CROSS_COMPILER, EMULATOR) if shutil.which(name) is None]


def runnable_levels() -> list[str]:
    """Those of this processor, and ARM's where they can be emulated."""
    own = native.levels()
    return own if missing_tools() else [*own, *(each for each in EMULATED_CPUS if each not in own)]


def results(level: str, folder: Path) -> dict[str, str]:
    """The hash of each case. Raises CompileError where it does not compile, CalledProcessError
    where it does not run."""
    emulated = level not in native.levels()
    compiler = [CROSS_COMPILER, "-static"] if emulated else [*(build.find_compiler() or ["c++"])]
    binary = folder / level
    sources = [str(CASES), *(str(build.SOURCES / name) for name in SOURCES)]
    flags = [*_FLAGS, *native.LEVELS[level].compiler_flags]
    made = subprocess.run(
        [*compiler, *flags, *sources, "-o", str(binary)], capture_output=True, text=True
    )
    if made.returncode:
        raise build.CompileError(made.stderr)
    command = [EMULATOR, "-cpu", EMULATED_CPUS[level]] if emulated else []
    done = subprocess.run([*command, str(binary)], check=True, stdout=subprocess.PIPE, text=True)
    lines = (line.rpartition(" ") for line in done.stdout.splitlines())
    return {name: value for name, _, value in lines}


def differences(of: dict[str, dict[str, str]]) -> list[str]:
    """A line for each case whose bits are not those of the first level with as many lanes, or of
    the first level for what is the same everywhere."""
    found = []
    for level, own in of.items():
        for name, value in own.items():
            alike = (
                other
                for other in of
                if name.startswith(EVERYWHERE) or (other in WIDE) == (level in WIDE)
            )
            first = next(alike)
            pairs = name.startswith(("linear ", "product ")) and (
                (first in BF16_PAIRS) != (level in BF16_PAIRS)
            )
            if of[first].get(name) != value and not pairs:
                found.append(f"{name}: {level} differs from {first}")
    return found


def main() -> int:
    """Compile, run, compare, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.levels")
    parser.add_argument("--levels", nargs="+", choices=native.LEVELS)
    levels = parser.parse_args().levels or [*runnable_levels()]
    missing = missing_tools()
    if missing:
        print(f"ARM's levels need {' and '.join(missing)}, which this machine has not", flush=True)
        print("Debian: apt install g++-aarch64-linux-gnu qemu-user", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for level in levels:
            found[level] = results(level, Path(folder))
            print(f"{level}: {len(found[level])} cases", flush=True)
    wrong = differences(found)
    print("\n".join(wrong) or f"the same bits: {', '.join(found)}")
    return 1 if wrong else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
