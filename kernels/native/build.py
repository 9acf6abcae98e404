"""Compiles the kernels with the system's C++ compiler.

Owns which sources make which library and when one cannot be made.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from kernels import native

SOURCES = Path(__file__).parent
# Products and sums are fused where the sources say so: the same bits at every level
LANGUAGE_FLAGS = ("-std=c++17", "-fopenmp", "-fwrapv", "-ffp-contract=off")
_BUILD_FLAGS = ("-O3", "-shared", "-fPIC", "-w")
# Of developers' checks only: a user's build must not fail on what a newer compiler warns of
_STRICT_FLAGS = ("-fsyntax-only", "-Wall", "-Wextra", "-Werror")
_LLAMACPP_OF_WHEEL = "../../../llama_cpp/lib"  # from native.SHIPPED
COMPILE_S = 600.0
# The libraries share their threads with whoever loads them, by using the same OpenMP
_OPENMP = b"\0libgomp.so.1\0"


class CompileError(Exception):
    """Why there is no library; hearth works without."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A library: its sources, and what it is compiled and linked with."""

    name: str
    sources: tuple[str, ...]
    include: tuple[Path, ...] = ()
    link: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()
    check: str | None = None  # a module that says by its exit status whether a library is right


def build(recipe: Recipe) -> Path:
    """Compiles the library and puts it in its place once it is known to be right: workers may start
    meanwhile. One that came with the wheel and is right here is taken as it is. Raises
    CompileError: what does not compile leaves the library that is there, what computes wrong
    results takes it away."""
    level = native.level()
    if level is None:
        raise CompileError("no kernels for this processor: neither x86 with AVX2 nor 64-bit ARM")
    native.FOLDER.mkdir(parents=True, exist_ok=True)
    target = native.FOLDER / f"{recipe.name}-{level}.so"
    shipped = native.SHIPPED / target.name
    if shipped.is_file() and _is_right(recipe, shipped):
        target.unlink(missing_ok=True)
        return shipped
    level = next(each for each in native.from_level(level) if _is_known(each))
    target = target.with_name(f"{recipe.name}-{level}.so")
    built, kept = target.with_name(f".{target.name}.{os.getpid()}"), _kept(recipe, level)
    try:
        if kept is not None and kept.is_file():
            shutil.copyfile(kept, built)  # which is linked relative to its place
        if not built.is_file() or not _is_right(recipe, built):
            _link(recipe, level, built)
            if not _is_right(recipe, built):
                target.unlink(missing_ok=True)
                raise CompileError("the compiled kernels give wrong results on this machine")
            if kept is not None:
                _keep(built, kept, f"{recipe.name}-{level}-*.so")
        os.replace(built, target)
    finally:
        built.unlink(missing_ok=True)
    return target


def build_levels(recipe: Recipe, folder: Path) -> None:
    """Compiles the library for every level of this kind of processor, to lie in SHIPPED of a wheel.
    Raises CompileError."""

    def link(level: str) -> None:
        _link(recipe, level, folder / f"{recipe.name}-{level}.so", _LLAMACPP_OF_WHEEL)

    with ThreadPoolExecutor(os.cpu_count()) as compilers:
        list(compilers.map(link, _levels()))


def _levels() -> list[str]:
    machine = platform.machine()
    return [name for name, each in native.LEVELS.items() if each.machine == machine]


def _link(recipe: Recipe, level: str, library: Path, beside: str | None = None) -> None:
    """beside: where what it is linked with will lie, from the library, for the environment may be
    moved, and OpenMP, which not every machine has; without it the library lies in native.FOLDER."""
    compiler = _require_compiler()
    flags = [*_BUILD_FLAGS, *_flags(recipe, level)]
    places = [os.path.relpath(file.parent, native.FOLDER) for file in recipe.link]
    linked = [f"-Wl,-rpath,$ORIGIN/{place}" for place in ([beside] if beside else places)]
    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as compilers:

        def compiled(source: str) -> str:
            made = str(Path(folder, Path(source).stem + ".o"))
            _compile([*compiler, *flags, "-c", source, "-o", made])
            return made

        objects = list(compilers.map(compiled, _sources(recipe)))
        _compile([*compiler, *flags, *objects, "-o", str(library), *map(str, recipe.link), *linked])


def _kept(recipe: Recipe, level: str) -> Path | None:
    """Where install.sh keeps what it compiled of these very sources, by this compiler."""
    folder = os.environ.get("HEARTH_KERNELS_KEPT")
    if not folder:
        return None
    compiler = _require_compiler()
    places = [os.path.relpath(file.parent, native.FOLDER) for file in recipe.link]
    digest = hashlib.sha256("\0".join([*compiler, *_BUILD_FLAGS, *places, *recipe.define]).encode())
    digest.update(subprocess.run([*compiler, "--version"], capture_output=True).stdout)
    for place in (SOURCES, *recipe.include):
        for file in sorted({*place.glob("*.h"), *place.glob("*.cpp")}):
            digest.update(file.name.encode() + file.read_bytes())
    return Path(folder) / f"{recipe.name}-{level}-{digest.hexdigest()[:32]}.so"


def _keep(library: Path, kept: Path, others: str) -> None:
    """In the place of others, whole or not at all."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    for former in kept.parent.glob(others):
        former.unlink(missing_ok=True)
    part = kept.with_name(f".{kept.name}.{os.getpid()}")
    shutil.copyfile(library, part)
    os.replace(part, kept)


def check_warnings(recipe: Recipe) -> None:
    """Raises CompileError, with the compiler's words, where it warns of something in a library's
    sources at one of this machine's levels, which the processor need not have. Leaves nothing."""
    for level in _levels():
        command = [*_require_compiler(), *_STRICT_FLAGS, *_flags(recipe, level), *_sources(recipe)]
        _compile(command)


def _require_compiler() -> list[str]:
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler with OpenMP found")
    return compiler


def _is_known(level: str) -> bool:
    """Whether the assembler knows what the level has; binutils 2.35, of Debian 11, has no AMX."""
    instruction = native.LEVELS[level].instruction
    if instruction is None:
        return True
    command = [*_require_compiler(), "-c", "-x", "assembler", "-o", os.devnull, "-"]
    return (
        subprocess.run(command, input=f"{instruction}\n".encode(), capture_output=True).returncode
        == 0
    )


def _flags(recipe: Recipe, level: str) -> list[str]:
    flags = [*LANGUAGE_FLAGS, *native.LEVELS[level].compiler_flags]
    flags += [f"-isystem{folder}" for folder in recipe.include]
    return flags + [f"-D{text}" for text in recipe.define]


def _sources(recipe: Recipe) -> list[str]:
    return [str(SOURCES / source) for source in recipe.sources]


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMPILE_S,
            env={**os.environ, "LC_ALL": "C"},  # the messages are looked through
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} did not finish within {COMPILE_S:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        # What is wrong comes first, then the lines and carets that show where; the linker's cause
        # has no such word
        errors = (line for line in lines if "error: " in line and not line.startswith("collect2"))
        cause = next(errors, lines[0])
        raise CompileError(f"{command[0]} failed: {cause}")


def _is_right(recipe: Recipe, library: Path) -> bool:
    """Whether the library computes what it should here; another process tries it, since a wrong one
    may end it."""
    if recipe.check is None:
        return True
    command = [sys.executable, "-m", recipe.check, str(library)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=COMPILE_S, cwd=SOURCES.parents[1]
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def find_compiler() -> list[str] | None:
    """The command of a GCC, which brings the OpenMP that llama.cpp is built with: $CXX if that is
    one. None: there is none."""
    try:
        from_environment = shlex.split(os.environ.get("CXX", ""))
    except ValueError:
        from_environment = []
    for command in ([from_environment] if from_environment else []) + [["c++"], ["g++"]]:
        if shutil.which(command[0]) and _is_gcc(command):
            return command
    return None


def _is_gcc(command: list[str]) -> bool:
    shown = subprocess.run(
        [*command, "-dM", "-E", "-x", "c++", "-"], input="", capture_output=True, text=True
    )
    return "__GNUC__" in shown.stdout and "__clang__" not in shown.stdout


def _llamacpp() -> Recipe:
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise CompileError("llama-cpp-python is not installed")
    libraries = Path(spec.origin).parent / "lib"
    headers = Path(spec.origin).parents[1] / "include"
    base, cpus = libraries / "libggml-base.so", [*libraries.glob("libggml-cpu*.so")]
    if not (headers / "ggml-backend.h").is_file() or not base.is_file():
        raise CompileError("this build of llama.cpp has no headers")
    if not cpus or _OPENMP not in cpus[0].read_bytes():
        raise CompileError("this build of llama.cpp does not use GCC's OpenMP")
    return Recipe(
        "llamacpp",
        ("matmul.cpp", "attention.cpp", "lora.cpp", "adapters.cpp", "ggml_backend.cpp"),
        include=(headers,),
        link=(base,),
        define=(f'HEARTH_GGML="{_ggml_version(base)}"',),
        check="kernels.native.check",
    )


def _ggml_version(base: Path) -> str:
    """Version and commit: what another one has in its structures is not known."""
    try:
        library = ctypes.CDLL(str(base))
        functions = library.ggml_version, library.ggml_commit
    except (OSError, AttributeError) as error:
        raise CompileError(
            f"this build of llama.cpp does not report its version: {error}"
        ) from None
    for function in functions:
        function.restype = ctypes.c_char_p
    return " ".join(function().decode() for function in functions)


_TORCH = Recipe(
    "torch", ("linear.cpp", "decode.cpp", "lora.cpp"), check="kernels.native.check_torch"
)


def _torch() -> Recipe | None:
    return None if find_spec("torch") is None else _TORCH


def for_wheel() -> tuple[Recipe, ...]:
    """Every library, whether who would use it is installed or not. Raises CompileError."""
    return _llamacpp(), _TORCH


# Every library, by name. None: who would use it is not installed; CompileError: it cannot be built.
RECIPES: dict[str, Callable[[], Recipe | None]] = {"llamacpp": _llamacpp, "torch": _torch}


def remove_all() -> None:
    """Removes every library."""
    for folder in (native.FOLDER, native.SHIPPED):
        shutil.rmtree(folder, ignore_errors=True)
