"""Kernels for the processor, in C++: compiled on the machine that they run on, where it has a
compiler (`python -m kernels.native`), or for every level in hearth's wheel. Everything works
without them, slower.

Knows where a compiled library lies and for which processors it is; build.py makes them.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Level:
    """What a processor must have: platform.machine(), and features in /proc/cpuinfo's words.
    compiler_flags let a compiler use them; not -march=native: the library may still be there when
    the machine is another. instruction: what an assembler must know besides."""

    machine: str
    features: tuple[str, ...]
    compiler_flags: tuple[str, ...]
    instruction: str | None = None


def _x86(*features: str) -> Level:
    return Level("x86_64", features, tuple(f"-m{name.replace('_', '')}" for name in features))


_AVX2 = ("avx2", "fma", "bmi2", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")
_AVX512_BF16 = (*_AVX512, "avx512_bf16")
# Best first, of each machine
LEVELS = {
    "amx": Level(
        "x86_64",
        (*_AVX512_BF16, "amx_tile", "amx_int8"),
        (*_x86(*_AVX512_BF16).compiler_flags, "-DHEARTH_AMX"),
        "tilezero %tmm0",
    ),
    "avx512bf16": _x86(*_AVX512_BF16),
    "avx512": _x86(*_AVX512),
    "avxvnni": _x86(*_AVX2, "avx_vnni"),
    "avx2": _x86(*_AVX2),
    "i8mm": Level("aarch64", ("asimddp", "i8mm"), ("-march=armv8.2-a+dotprod+i8mm",)),
    "dotprod": Level("aarch64", ("asimddp",), ("-march=armv8.2-a+dotprod",)),
    "neon": Level("aarch64", ("asimd",), ("-march=armv8-a",)),
}
FOLDER = Path(sys.prefix) / "lib" / "hearth"
SHIPPED = Path(__file__).parent / "lib"  # of a wheel
_CPUINFO = Path("/proc/cpuinfo")


def levels() -> list[str]:
    """Those of LEVELS that this processor has, best first; none where it is not Linux."""
    return [name for name, lacking in _lacking().items() if not lacking]


def better_levels() -> dict[str, list[str]]:
    """Those of LEVELS that are better than level(), with the features that this processor lacks."""
    lacking = _lacking()
    names = list(lacking)
    found = level()
    return {name: lacking[name] for name in names[: names.index(found) if found else None]}


def _lacking() -> dict[str, list[str]]:
    """What this processor lacks of each of the LEVELS of its machine, best first."""
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    words = next((line.split() for line in lines if line.startswith(("flags", "Features"))), [])
    machine = platform.machine()
    return {
        name: [feature for feature in level.features if feature not in words]
        for name, level in LEVELS.items()
        if level.machine == machine
    }


@cache
def level() -> str | None:
    """The best of levels(); None: there is none."""
    return next(iter(levels()), None)


def library_path(name: str) -> Path | None:
    """The compiled library of this name for this processor, of its best level that there is one
    for; None: there is none."""
    paths = (
        folder / f"{name}-{each}.so" for each in from_level(level()) for folder in (FOLDER, SHIPPED)
    )
    return next((path for path in paths if path.is_file()), None)


def from_level(best: str | None) -> list[str]:
    """This level, and those of levels() that are less."""
    if best is None:
        return []
    names = levels()
    return [best, *(names[names.index(best) + 1 :] if best in names else ())]
