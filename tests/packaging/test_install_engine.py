"""Which builds of llama.cpp install.sh tries, in which order, and which one it keeps."""

from __future__ import annotations

import pytest

from tests.packaging.conftest import Machine

# Stand-ins for the functions that download, compile, install and run a model. A build is
# known by the folder that its wheel lies in; BROKEN names those that crash.
FAKES = """
    download_wheel() { return 1; }
    build_wheel() (
        export_flags "$2"
        say "$2|$CXXFLAGS|$CMAKE_ARGS" >>built
        touch "$1/engine.whl"
    )
    install_wheel() { basename "$(dirname "$1")" >current; }
    install_hearth() { touch hearth; }
    engine_version() { :; }
    kernels() { say "  no kernels"; }
    generate() {
        case " $BROKEN " in *" $(cat current) "*) sh -c 'kill -SEGV $$' ;; *) cat current ;; esac
    }
"""


def _machine_with(machine: Machine, *, amx: bool, gcc: int) -> Machine:
    machine.add_python()
    machine.add("c++", f'case "$*" in *-dM*) echo "#define __GNUC__ {gcc}" ;; esac')
    cpuinfo = machine.home / "cpuinfo"
    cpuinfo.write_text("model name : test\nflags : avx2" + (" amx_tile\n" if amx else "\n"))
    machine.variables["HEARTH_INSTALL_CPUINFO"] = str(cpuinfo)
    return machine


def _built(machine: Machine) -> list[str]:
    return (machine.home / "built").read_text().splitlines()


@pytest.mark.parametrize(
    ("amx", "gcc", "expected"),
    [
        (False, 12, "prebuilt native portable"),
        (True, 13, "prebuilt native no-amx portable"),
        (True, 12, "prebuilt gcc12-amx no-amx portable"),
    ],
)
def test_order_follows_processor_and_compiler(
    machine: Machine, amx: bool, gcc: int, expected: str
) -> None:
    done = _machine_with(machine, amx=amx, gcc=gcc).functions("rungs")
    assert done.stdout.strip() == expected


def test_clang_is_not_taken_for_an_old_gcc(machine: Machine) -> None:
    _machine_with(machine, amx=True, gcc=4)
    machine.add("c++", 'echo "#define __clang__ 1"; echo "#define __GNUC__ 4"')
    assert "native" in machine.functions("rungs").stdout


def test_own_flags_ask_for_an_own_build(machine: Machine) -> None:
    machine.variables["CMAKE_ARGS"] = "-DGGML_CUDA=on"
    done = _machine_with(machine, amx=False, gcc=12).functions("rungs")
    assert done.stdout.strip() == "native portable"


def test_wheel_of_other_flags_or_processor_is_not_used(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    keys = {machine.functions("machine_key").stdout}
    assert keys == {machine.functions("machine_key").stdout}
    machine.variables["CMAKE_ARGS"] = "-DGGML_CUDA=on"
    keys.add(machine.functions("machine_key").stdout)
    _machine_with(machine, amx=True, gcc=12)
    keys.add(machine.functions("machine_key").stdout)
    assert len(keys) == 3


def test_first_build_that_answers_is_kept(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    done = machine.functions(FAKES + 'BROKEN=; install_engine; say "engine=$engine"')
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("engine=native\n")
    assert _built(machine) == ["native||"]
    assert (machine.home / "hearth").exists()


def test_crashing_builds_are_replaced_step_by_step(machine: Machine) -> None:
    _machine_with(machine, amx=True, gcc=12)
    done = machine.functions(FAKES + 'BROKEN="gcc12-amx no-amx"; install_engine')
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("crashed by signal 11") == 2
    assert "kept: a portable build" in done.stdout
    off = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    assert _built(machine) == [
        "gcc12-amx| -fno-tree-dse -fno-dse|",
        f"no-amx| {off}|",
        "portable|| -DGGML_NATIVE=OFF",
    ]


def test_next_installation_begins_with_the_build_that_was_kept(machine: Machine) -> None:
    _machine_with(machine, amx=True, gcc=12)
    machine.functions(FAKES + "BROKEN=gcc12-amx; install_engine")
    (machine.home / "built").unlink()
    done = machine.functions(FAKES + 'BROKEN=gcc12-amx; install_engine; say "engine=$engine"')
    assert done.stdout.endswith("engine=no-amx\n")
    assert not (machine.home / "built").exists(), "its wheel was kept as well"


def test_prebuilt_wheel_that_does_not_load_is_replaced_by_a_build(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    fakes = (
        FAKES
        + """
        download_wheel() { touch "$1/engine.whl"; }
        generate() { grep -q native current; }
    """
    )
    done = machine.functions(fakes + 'install_engine; say "engine=$engine"')
    assert done.stdout.endswith("engine=native\n")


KERNELS = """
    kernels() {
        case ${1:-} in
        --remove) rm -r "$prefix/lib/hearth" ;;
        *) mkdir -p "$prefix/lib/hearth"; say "  kernels for a test" ;;
        esac
    }
"""


def test_own_kernels_are_built_and_stay_where_ember_answers(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    script = FAKES + KERNELS + 'BROKEN=; install_engine; ls "$prefix/lib"'
    done = machine.functions(script)
    assert "kernels for a test" in done.stdout
    assert done.stdout.endswith("hearth\n")


def test_own_kernels_that_crash_are_removed_and_the_build_is_kept(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    crash = """generate() { ! [ -d "$prefix/lib/hearth" ] || sh -c 'kill -ILL $$'; }"""
    script = FAKES + KERNELS + crash + '\ninstall_engine; say "engine=$engine"; ls "$prefix/lib"'
    done = machine.functions(script)
    assert "crashed by signal 4" in done.stdout
    assert "trying again without hearth's kernels" in done.stdout
    assert done.stdout.endswith("engine=native\n")
    assert _built(machine) == ["native||"]


def test_machine_where_everything_crashes_gets_an_error(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    done = machine.functions(FAKES + 'BROKEN="native portable"; install_engine')
    assert done.returncode == 1
    assert "every build of llama.cpp crashes" in done.stderr


def test_being_killed_is_no_fault_of_the_build(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    killed = "generate() { sh -c 'kill -KILL $$'; }; install_engine"
    done = machine.functions(FAKES + killed)
    assert done.returncode == 1
    assert "status 137" in done.stderr
    assert _built(machine) == ["native||"]


def test_build_that_was_there_and_still_answers_is_not_built_again(machine: Machine) -> None:
    _machine_with(machine, amx=False, gcc=12)
    script = """
        engine=native print=p; record; echo native >current
        engine_version() { say 1.0; }
        BROKEN=; install_engine; say "engine=$engine"
    """
    done = machine.functions(FAKES + script)
    assert done.stdout.endswith("engine=native\n")
    assert not (machine.home / "built").exists()
