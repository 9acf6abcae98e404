"""Kernels for the processor, in C++: compiled on the machine that they run on, where it has a
compiler (`python -m kernels.native`). Everything works without them, slower.

Knows where a compiled library lies and for which processors it is; build.py makes them.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

# What a processor must have, in /proc/cpuinfo's words, and the flags for it, best first. Not
# -march=native: the library may still be there when the machine is another.
_AVX2 = ("avx2", "fma", "bmi2", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")
LEVELS: dict[str, tuple[str, ...]] = {
    "avx512bf16": (*_AVX512, "avx512_bf16"),
    "avx512": _AVX512,
    "avxvnni": (*_AVX2, "avx_vnni"),
    "avx2": _AVX2,
}
FOLDER = Path(sys.prefix) / "lib" / "hearth"
_CPUINFO = Path("/proc/cpuinfo")


def compiler_flags(level: str) -> list[str]:
    """What lets a compiler use the instructions of a level."""
    return [f"-m{name.replace('_', '')}" for name in LEVELS[level]]


@cache
def level() -> str | None:
    """The best of LEVELS that this processor has; None: none of them, or not Linux."""
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return None
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    return next((name for name, needed in LEVELS.items() if flags.issuperset(needed)), None)


def library_path(name: str) -> Path | None:
    """The compiled library of this name for this processor; None: there is none."""
    found = level()
    path = FOLDER / f"{name}-{found}.so"
    return path if found is not None and path.is_file() else None
