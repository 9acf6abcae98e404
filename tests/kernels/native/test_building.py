"""Compiling the kernels: for which processor, and what is left when it fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels import native
from kernels.native import building
from kernels.native.__main__ import main
from kernels.native.building import CannotBuild, Recipe

CHECK = "kernels.native.check"
ZEN_5 = "avx2 fma bmi2 f16c avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx_vnni"
needs_gcc = pytest.mark.skipif(
    building.find_compiler() is None or native.level() is None, reason="needs GCC and AVX2"
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


@pytest.mark.parametrize(
    ("has", "level"),
    [
        (ZEN_5, "avx512bf16"),
        (ZEN_5.replace("avx512_bf16 ", ""), "avx512"),
        ("avx2 fma bmi2 f16c avx_vnni", "avxvnni"),
        ("avx2 fma bmi2 f16c", "avx2"),
        ("avx2 bmi2 f16c", None),
        ("", None),
    ],
)
def test_the_level_is_what_the_processor_has(flags: Path, has: str, level: str | None) -> None:
    flags.write_text(f"processor\t: 0\nflags\t\t: fpu {has}\nbogomips: 1\n\nflags\t: none\n")
    assert native.level() == level


def test_without_proc_there_is_no_level_and_no_library(flags: Path) -> None:
    assert native.level() is None
    assert native.library("llamacpp") is None


def test_a_library_for_another_processor_is_not_taken(flags: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "llamacpp-avx512.so").touch()
    flags.write_text("flags : avx2 fma bmi2 f16c avx_vnni")
    assert native.library("llamacpp") is None
    native.level.cache_clear()
    flags.write_text(f"flags : {ZEN_5.replace('avx512_bf16 ', '')}")
    assert native.library("llamacpp") == folder / "llamacpp-avx512.so"


@needs_gcc
def test_what_does_not_compile_leaves_the_library_in_place(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.cpp"
    broken.write_text("int x = ;\n")
    folder.mkdir(parents=True)
    old = folder / f"own-{native.level()}.so"
    old.write_bytes(b"old")
    with pytest.raises(CannotBuild, match="failed: "):
        building.build(Recipe("own", (str(broken),)))
    assert old.read_bytes() == b"old"
    assert list(folder.iterdir()) == [old]


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("level", native.LEVELS)
def test_every_level_that_the_processor_has_computes_right(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 s of compiling for each."""
    needed = native.LEVELS[level][0]
    has = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    if not set(has).issuperset(needed):
        pytest.skip(f"this processor has not {level}")
    monkeypatch.setattr(native, "level", lambda: level)
    recipe = building.RECIPES["llamacpp"]()
    assert recipe is not None
    building.check(recipe, building.build(recipe))


@needs_gcc
def test_a_library_that_computes_wrongly_is_removed(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text(
        'extern "C" bool hearth_matmul_takes(int, long) { return true; }\n'
        'extern "C" unsigned long hearth_matmul_work(long, long, long) { return 64; }\n'
        'extern "C" void hearth_matmul(const void *) {}\n'
    )
    recipe = Recipe("wrong", (str(source),), check=CHECK)
    library = building.build(recipe)
    with pytest.raises(CannotBuild, match="computes wrong results here"):
        building.check(recipe, library)
    assert not library.exists()


@needs_gcc
def test_a_library_that_ends_its_process_is_removed(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "crash.cpp"
    source.write_text('extern "C" bool hearth_matmul_takes(int, long) { __builtin_trap(); }\n')
    recipe = Recipe("crash", (str(source),), check=CHECK)
    library = building.build(recipe)
    with pytest.raises(CannotBuild):
        building.check(recipe, library)
    assert not library.exists()


def test_without_a_compiler_the_command_says_so_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: Path
) -> None:
    flags.write_text(f"flags : {ZEN_5}")
    monkeypatch.setattr(shutil, "which", lambda command: None)
    assert main([]) == 0
    assert "no C++ compiler with OpenMP was found" in capsys.readouterr().out


def test_removing_takes_every_library_away(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "llamacpp-avx512.so").touch()
    assert main(["--remove"]) == 0
    assert not folder.exists()


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--what"]) == 2
    assert "usage" in capsys.readouterr().err
