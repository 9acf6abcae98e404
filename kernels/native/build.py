"""Compiles the kernels with the system's C++ compiler.

Owns which sources make which library and when one cannot be made.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kernels import native

SOURCES = Path(__file__).parent
FLAGS = ("-std=c++17", "-O3", "-fopenmp", "-shared", "-fPIC", "-fwrapv", "-w")
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
    """Compile it and put it in its place once it is known to be right: workers may start meanwhile.
    Raises CannotBuild: what does not compile leaves the library that is there, what computes wrong
    results takes it away."""
    level = native.level()
    if level is None:
        raise CompileError("this processor has no AVX2")
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler with OpenMP was found")
    native.FOLDER.mkdir(parents=True, exist_ok=True)
    target = native.FOLDER / f"{recipe.name}-{level}.so"
    with tempfile.TemporaryDirectory(dir=native.FOLDER) as folder:
        made = Path(folder) / target.name
        command = [*compiler, *FLAGS, *native.compiler_flags(level), "-o", str(made)]
        command += [f"-I{folder}" for folder in recipe.include]
        command += [f"-D{text}" for text in recipe.define]
        command += [str(SOURCES / source) for source in recipe.sources]
        for file in recipe.link:
            command += [str(file), f"-Wl,-rpath,{file.parent}"]
        _compile(command)
        if not _is_right(recipe, made):
            target.unlink(missing_ok=True)
            raise CompileError("what was compiled computes wrong results here")
        os.replace(made, target)
    return target


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
        raise CompileError(f"{command[0]} was not done after {COMPILE_S:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        # What is wrong comes first, then the lines and carets that show where; the linker's cause
        # has no such word
        errors = (line for line in lines if "error" in line and not line.startswith("collect2"))
        cause = next(errors, lines[0])
        raise CompileError(f"{command[0]} failed: {cause}")


def _is_right(recipe: Recipe, library: Path) -> bool:
    """Let another process see whether the library computes what it should here, since a wrong one
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
    """The command of a GCC, which brings the OpenMP that llama.cpp is built with."""
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError:
        named = []
    for command in ([named] if named else []) + [["c++"], ["g++"]]:
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
    base, processor = libraries / "libggml-base.so", libraries / "libggml-cpu.so"
    if not (headers / "ggml-backend.h").is_file() or not base.is_file():
        raise CompileError("this build of llama.cpp comes without its headers")
    if not processor.is_file() or _OPENMP not in processor.read_bytes():
        raise CompileError("this build of llama.cpp does not use GCC's OpenMP")
    return Recipe(
        "llamacpp",
        ("matmul.cpp", "attention.cpp", "ggml_backend.cpp"),
        include=(headers,),
        link=(base,),
        define=(f'HEARTH_GGML="{_ggml(base)}"',),
        check="kernels.native.check",
    )


def _ggml(base: Path) -> str:
    """Version and commit: what another one has in its structures is not known."""
    try:
        library = ctypes.CDLL(str(base))
        said = library.ggml_version, library.ggml_commit
    except (OSError, AttributeError) as error:
        raise CompileError(f"this build of llama.cpp does not say its version: {error}") from None
    for function in said:
        function.restype = ctypes.c_char_p
    return " ".join(function().decode() for function in said)


def _torch() -> Recipe | None:
    if find_spec("torch") is None:
        return None
    return Recipe("torch", ("linear.cpp", "decode.cpp"), check="kernels.native.check_torch")


# Every library, by name. Who would use it is not installed: None; it cannot be made: CannotBuild.
RECIPES: dict[str, Callable[[], Recipe | None]] = {"llamacpp": _llamacpp, "torch": _torch}


def remove_all() -> None:
    """Forget every library."""
    shutil.rmtree(native.FOLDER, ignore_errors=True)
