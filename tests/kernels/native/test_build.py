"""Compiling the kernels: for which processor, and what is left when it fails."""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernels import native
from kernels.native import build
from kernels.native.__main__ import main
from kernels.native.build import CompileError, Recipe

CHECK = "kernels.native.check"
ZEN_5 = "avx2 fma bmi2 f16c avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx_vnni"
needs_gcc = pytest.mark.skipif(
    build.find_compiler() is None or native.level() is None, reason="needs GCC and AVX2"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(native, "FOLDER", tmp_path / "lib" / "hearth")
    level = native.level
    level.cache_clear()
    yield native.FOLDER
    level.cache_clear()


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that tells the processor's flags."""
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(native, "_CPUINFO", file)
    return file


def _older(folder: Path) -> Path:
    """A library named own that was there before."""
    folder.mkdir(parents=True)
    old = folder / f"own-{native.level()}.so"
    old.write_bytes(b"old")
    return old


@pytest.mark.parametrize(
    ("has", "level"),
    [
        (f"{ZEN_5} amx_bf16 amx_tile amx_int8", "amx"),
        (f"{ZEN_5} amx_tile", "avx512bf16"),
        (ZEN_5, "avx512bf16"),
        (ZEN_5.replace("avx512_bf16 ", ""), "avx512"),
        ("avx2 fma bmi2 f16c avx_vnni", "avxvnni"),
        ("avx2 fma bmi2 f16c", "avx2"),
        ("avx2 bmi2 f16c", None),
        ("", None),
        ("asimd asimddp i8mm", None),
    ],
)
def test_the_level_is_what_the_processor_has(
    flags: Path, monkeypatch: pytest.MonkeyPatch, has: str, level: str | None
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    flags.write_text(f"processor\t: 0\nflags\t\t: fpu {has}\nbogomips: 1\n\nflags\t: none\n")
    assert native.level() == level


@pytest.mark.parametrize(
    ("machine", "has", "level"),
    [
        ("aarch64", "fp asimd asimddp sve i8mm bf16", "i8mm"),
        ("aarch64", "fp asimd asimddp", "dotprod"),
        ("aarch64", "fp asimd i8mm", "neon"),
        ("aarch64", "fp", None),
        ("aarch64", ZEN_5, None),
        ("armv7l", "neon vfpv4", None),
    ],
)
def test_the_level_of_an_arm_processor_is_what_it_has(
    flags: Path, monkeypatch: pytest.MonkeyPatch, machine: str, has: str, level: str | None
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    flags.write_text(f"processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: {has}\nCPU part\t: 0xd40\n")
    assert native.level() == level


def test_without_proc_there_is_no_level_and_no_library(flags: Path) -> None:
    assert native.level() is None
    assert native.library_path("llamacpp") is None


def test_a_library_for_another_processor_is_not_taken(flags: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "llamacpp-avx512.so").touch()
    flags.write_text("flags : avx2 fma bmi2 f16c avx_vnni")
    assert native.library_path("llamacpp") is None
    native.level.cache_clear()
    flags.write_text(f"flags : {ZEN_5.replace('avx512_bf16 ', '')}")
    assert native.library_path("llamacpp") == folder / "llamacpp-avx512.so"


def test_a_library_of_the_wheel_is_taken_where_none_was_compiled(
    flags: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SHIPPED", tmp_path / "wheel")
    flags.write_text(f"flags : {ZEN_5}")
    for place in (native.SHIPPED, folder):
        place.mkdir(parents=True)
        (place / "own-avx512bf16.so").touch()
        assert native.library_path("own") == place / "own-avx512bf16.so"
    assert build.build(Recipe("own", ())) == native.SHIPPED / "own-avx512bf16.so"
    assert native.library_path("own") == native.SHIPPED / "own-avx512bf16.so"


@needs_gcc
@pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is of x86")
def test_an_assembler_without_amx_makes_the_next_level(
    flags: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags.write_text(f"flags : {ZEN_5} amx_tile amx_int8")
    source = tmp_path / "own.cpp"
    source.write_text("int x;\n")
    recipe = Recipe("own", (str(source),))
    assert build.build(recipe) == folder / "own-amx.so"
    (folder / "own-amx.so").unlink()
    amx = replace(native.LEVELS["amx"], instruction="no instruction")
    monkeypatch.setitem(native.LEVELS, "amx", amx)
    assert build.build(recipe) == folder / "own-avx512bf16.so"
    assert native.library_path("own") == folder / "own-avx512bf16.so"


@needs_gcc
def test_what_does_not_compile_leaves_the_library_in_place(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.cpp"
    broken.write_text("int x = ;\n")
    old = _older(folder)
    with pytest.raises(CompileError, match=r"failed: .*broken\.cpp:1:.* error: "):
        build.build(Recipe("own", (str(broken),)))
    assert old.read_bytes() == b"old"
    assert list(folder.iterdir()) == [old]


@needs_gcc
def test_what_was_compiled_before_is_taken_until_a_source_changes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setenv("HEARTH_KERNELS_KEPT", str(kept))
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    for name in ("own", "other"):
        (tmp_path / f"{name}.cpp").write_text(f"int of_{name}() {{ return 1; }}\n")
    recipe = Recipe("own", ("own.cpp", "other.cpp"))
    build.build(recipe)
    (first,) = kept.iterdir()
    monkeypatch.setattr(build, "_compile", lambda command: pytest.fail("compiled again"))
    library = ctypes.CDLL(str(build.build(recipe)))
    assert (library._Z6of_ownv(), library._Z8of_otherv()) == (1, 1)
    monkeypatch.undo()
    monkeypatch.setenv("HEARTH_KERNELS_KEPT", str(kept))
    monkeypatch.setattr(native, "FOLDER", folder)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    (tmp_path / "own.cpp").write_text("int of_own() { return 2; }\n")
    assert ctypes.CDLL(str(build.build(replace(recipe, name="new"))))._Z6of_ownv() == 2
    build.build(recipe)
    assert sorted(file.name[:4] for file in kept.iterdir()) == ["new-", "own-"]
    assert not first.exists()


@needs_gcc
def test_what_is_kept_and_not_right_is_compiled_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setenv("HEARTH_KERNELS_KEPT", str(kept))
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    (tmp_path / "own.cpp").write_text("int of_own() { return 1; }\n")
    recipe = Recipe("own", ("own.cpp",), check="right")
    right = {b"torn": False}
    monkeypatch.setattr(
        build, "_is_right", lambda _recipe, library: right.get(library.read_bytes(), True)
    )
    build.build(recipe)
    (file,) = kept.iterdir()
    file.write_bytes(b"torn")
    assert ctypes.CDLL(str(build.build(recipe)))._Z6of_ownv() == 1
    assert file.read_bytes() != b"torn"


@needs_gcc
def test_what_takes_too_long_to_compile_leaves_the_library_in_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "own.cpp"
    source.write_text("int x;\n")
    old = _older(folder)
    monkeypatch.setattr(build, "COMPILE_S", -1.0)
    with pytest.raises(CompileError, match="did not finish within"):
        build.build(Recipe("own", (str(source),)))
    assert list(folder.iterdir()) == [old]


@needs_gcc
def test_a_library_takes_its_place_after_it_was_checked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "own.cpp"
    source.write_text("int x;\n")
    old = _older(folder)
    there = []

    def is_right(_recipe: Recipe, made: Path) -> bool:
        there.append((made.is_file(), old.read_bytes()))
        return True

    monkeypatch.setattr(build, "_is_right", is_right)
    assert build.build(Recipe("own", (str(source),))) == old
    assert there == [(True, b"old")]
    assert old.read_bytes() != b"old"


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("level", native.LEVELS)
def test_every_level_that_the_processor_has_computes_right(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 s of compiling for each."""
    if level not in native.levels():
        pytest.skip(f"this processor has not {level}")
    monkeypatch.setattr(native, "level", lambda: level)
    recipe = build.RECIPES["llamacpp"]()
    assert recipe is not None
    assert build.build(recipe).is_file()


@pytest.mark.slow
@needs_gcc
def test_a_library_for_another_version_of_ggml_is_none_of_its_backends(tmp_path: Path) -> None:
    """4 s of compiling."""
    recipe = build.RECIPES["llamacpp"]()
    assert recipe is not None
    source = tmp_path / "kernels.cpp"
    source.write_text(
        '#include "matmul.h"\n#include "attention.h"\n#include "lora.h"\n'
        "bool hearth_matmul_supports(int, int64_t) { return false; }\n"
        "size_t hearth_matmul_workspace_bytes(int, int64_t, int64_t, int64_t, int) { return 0; }\n"
        "void hearth_matmul(const hearth_matmul_args *) {}\n"
        "void hearth_matmul_fine(const hearth_matmul_args *) {}\n"
        "bool hearth_attention_supports(int, int, int64_t, int64_t) { return false; }\n"
        "size_t hearth_attention_workspace_bytes(const hearth_attention_args *) { return 0; }\n"
        "void hearth_attention(const hearth_attention_args *) {}\n"
        "void hearth_lora_shrink(const hearth_lora_use *, int64_t, const float *const *, int64_t,"
        " float *, int) {}\n"
        "void hearth_lora_expand(const hearth_lora_use *, int64_t, const float *, int64_t, int64_t,"
        " int64_t, const float *const *, float *const *, int) {}\n"
    )
    found = []
    for name, define in (("same", recipe.define), ("other", ('HEARTH_GGML="0.0.1 abc"',))):
        made = build.build(
            replace(
                recipe,
                name=name,
                sources=("ggml_backend.cpp", "adapters.cpp", str(source)),
                include=(*recipe.include, build.SOURCES),
                define=define,
                check=None,
            )
        )
        start = ctypes.CDLL(str(made)).ggml_backend_init
        start.restype = ctypes.c_void_p
        found.append(start() is not None)
    assert found == [True, False]


@needs_gcc
def test_a_warning_is_an_error_in_the_strict_check_only(tmp_path: Path) -> None:
    source = tmp_path / "own.cpp"
    source.write_text("int twice(int x, int unused) { return 2 * x; }\n")
    recipe = Recipe("own", (str(source),))
    assert build.build(recipe).is_file()
    with pytest.raises(CompileError, match="unused"):
        build.check_warnings(recipe)


def test_without_a_compiler_the_strict_check_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: None)
    assert main(["--strict"]) == 0
    assert "not checked" in capsys.readouterr().out


@needs_gcc
def test_a_library_that_computes_wrongly_is_removed(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text(
        'extern "C" bool hearth_matmul_supports(int, long) { return true; }\n'
        'extern "C" unsigned long hearth_matmul_workspace_bytes(int, long, long, long)'
        " { return 64; }\n"
        'extern "C" void hearth_matmul(const void *) {}\n'
    )
    folder.mkdir(parents=True)
    (folder / f"wrong-{native.level()}.so").write_bytes(b"old")
    with pytest.raises(CompileError, match="give wrong results on this machine"):
        build.build(Recipe("wrong", (str(source),), check=CHECK))
    assert list(folder.iterdir()) == []


@needs_gcc
def test_a_library_that_ends_its_process_is_removed(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "crash.cpp"
    source.write_text('extern "C" bool hearth_matmul_supports(int, long) { __builtin_trap(); }\n')
    with pytest.raises(CompileError, match="give wrong results on this machine"):
        build.build(Recipe("crash", (str(source),), check=CHECK))
    assert list(folder.iterdir()) == []


def test_without_a_compiler_the_command_says_so_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: Path
) -> None:
    flags.write_text(f"flags : {ZEN_5}")
    monkeypatch.setattr(shutil, "which", lambda command: None)
    assert main([]) == 0
    assert "no C++ compiler with OpenMP found" in capsys.readouterr().out


@needs_gcc
def test_where_nothing_can_be_written_the_command_says_so_and_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(native, "FOLDER", tmp_path / "file" / "hearth")
    assert main([]) == 0
    assert f"Not a directory: '{native.FOLDER}" in capsys.readouterr().out


@needs_gcc
def test_what_the_linker_lacks_is_said(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "own.cpp"
    source.write_text("int x;\n")
    missing = tmp_path / "libmissing.so"
    with pytest.raises(CompileError, match="libmissing"):
        build.build(Recipe("own", (str(source),), link=(missing,)))


def test_removing_takes_every_library_away(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "llamacpp-avx512.so").touch()
    assert main(["--remove"]) == 0
    assert not folder.exists()


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--what"]) == 2
    assert "usage" in capsys.readouterr().err
