"""What install.sh says and does on machines that lack something, and how it is undone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import REPOSITORY, Machine


def _sole_line(text: str) -> str:
    assert text.count("\n") == 1, text
    return text


def test_help_lists_every_option_and_needs_no_python(machine: Machine) -> None:
    done = machine.install_sh("--help")
    assert done.returncode == 0
    for option in (
        "--prefix",
        "--python",
        "--with-torch",
        "--with-speech",
        "--uninstall",
        "--purge",
        "--dev",
    ):
        assert option in done.stdout


def test_unknown_option_is_named(machine: Machine) -> None:
    done = machine.install_sh("--frobnicate")
    assert done.returncode == 1
    assert "--frobnicate" in _sole_line(done.stderr)


def test_purge_alone_removes_nothing(machine: Machine) -> None:
    done = machine.install_sh("--purge")
    assert done.returncode == 1
    assert "--uninstall" in _sole_line(done.stderr)


def test_machine_without_python_gets_one_line_with_the_packages(machine: Machine) -> None:
    done = machine.install_sh()
    assert done.returncode == 1
    line = _sole_line(done.stderr)
    for word in ("3.11", "apt install python3", "dnf install python3", "macOS", "--python"):
        assert word in line


def test_python_that_is_too_old_is_refused_by_name(machine: Machine) -> None:
    old = machine.add("python3", "exit 1")
    done = machine.install_sh("--python", str(old))
    assert done.returncode == 1
    assert str(old) in _sole_line(done.stderr)


def test_python_without_venv_gets_the_package(machine: Machine) -> None:
    machine.add("python3", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    done = machine.functions('find_python; rmdir "$prefix"; make_environment')
    assert done.returncode == 1
    assert "apt install python3-venv" in _sole_line(done.stderr)


def test_environment_stays_unless_another_series_is_asked_for(machine: Machine) -> None:
    old, new = (machine.add(name, f"echo {name}") for name in ("3.11", "3.12"))
    script = """
        mkdir -p "$prefix/bin"; touch "$prefix/pyvenv.cfg"
        ln -sf "$(command -v 3.11)" "$prefix/bin/python"
        step() { say "made"; }
    """
    machine.add("python3", "echo 3.12")
    assert machine.functions(script + "python=; find_python; make_environment").stdout == ""
    for path, expected in ((old, ""), (new, "made\n")):
        done = machine.functions(script + f"python={path}; find_python; make_environment")
        assert done.stdout == expected


def test_environment_that_was_left_without_pip_is_made_again(machine: Machine) -> None:
    machine.add("python3", 'case "$*" in *"pip --version"*) exit 1 ;; esac')
    script = """
        mkdir -p "$prefix/bin"; touch "$prefix/pyvenv.cfg"
        ln -s "$(command -v python3)" "$prefix/bin/python"
        step() { say "made"; }
        find_python; make_environment
    """
    assert machine.functions(script).stdout == "made\n"


def test_every_requirement_is_installed_once_with_its_hashes(machine: Machine) -> None:
    shutil.copy(REPOSITORY / "requirements.txt", machine.home)
    script = """
        pip() { while [ "$1" != -r ]; do shift; done; cat "$2" >>"installed.${2##*.}"; }
        install_requirements; echo "status $?"
    """
    done = machine.functions(script)
    assert done.stdout == "status 0\n", done.stderr
    paths = [machine.home / f"installed.{half}" for half in (0, 1)]
    entries = re.compile(r"^\S.*\n(?: .*\n)+", re.MULTILINE)
    found = [entries.findall(path.read_text()) for path in paths]
    wanted = entries.findall((REPOSITORY / "requirements.txt").read_text())
    assert sorted([*found[0], *found[1]]) == sorted(wanted)
    assert abs(len(found[0]) - len(found[1])) <= 1


@pytest.mark.parametrize("broken", ["one", "two"])
def test_requirement_that_cannot_be_installed_ends_the_step_and_is_the_end_of_its_log(
    machine: Machine, broken: str
) -> None:
    requirements = "one==1 \\\n    --hash=a\ntwo==2 \\\n    --hash=b\n"
    (machine.home / "requirements.txt").write_text(requirements)
    script = f"""
        pip() {{
            while [ "$1" != -r ]; do shift; done
            cat "$2"
            ! grep -q {broken}== "$2" || {{ echo "no {broken}" >&2; return 3; }}
        }}
        step packages install_requirements; echo reached
    """
    done = machine.functions(script)
    assert done.returncode == 1
    assert "reached" not in done.stdout
    shown = [line for line in done.stderr.splitlines() if line.startswith("  | ")]
    assert shown[-1] == f"  | no {broken}"
    assert "this step failed" in done.stderr.splitlines()[-1]


def test_foreign_folder_is_no_place_for_the_environment(machine: Machine) -> None:
    machine.add_python()
    (machine.home / "papers").mkdir()
    (machine.home / "papers" / "thesis.txt").write_text("years of work")
    done = machine.install_sh("--prefix", "papers")
    assert done.returncode == 1
    assert str(machine.home / "papers") in _sole_line(done.stderr)
    assert (machine.home / "papers" / "thesis.txt").read_text() == "years of work"


def test_machine_without_compiler_gets_one_line_with_the_packages(machine: Machine) -> None:
    done = machine.functions("make_wheel native")
    assert done.returncode == 1
    line = _sole_line(done.stderr)
    for word in ("compiler", "apt install build-essential", "dnf install gcc-c++"):
        assert word in line
    for word in ("xcode-select --install", "wsl --install"):
        assert word in line


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("dist", "{home}/dist"),
        ("/srv/wheels", "/srv/wheels"),
        ("https://127.0.0.1/wheels", "https://127.0.0.1/wheels"),
    ],
)
def test_folder_of_wheels_is_that_of_the_caller(machine: Machine, given: str, taken: str) -> None:
    machine.variables["HEARTH_WHEEL_INDEX"] = given
    done = machine.functions('cd /; settle_paths; say "$HEARTH_WHEEL_INDEX"')
    assert done.stdout == taken.format(home=machine.home) + "\n"


def test_failed_step_shows_the_end_of_its_log(machine: Machine) -> None:
    done = machine.functions('step "compiling" sh -c "echo undefined reference; exit 3"')
    assert done.returncode == 1
    assert "undefined reference" in done.stderr
    assert "this step failed" in done.stderr


def test_interrupted_installation_ends_what_it_started(machine: Machine) -> None:
    held = machine.home / "held"
    os.mkfifo(held)
    variables = {**machine.environment(), "HEARTH_INSTALL_SOURCED": str(REPOSITORY)}
    script = f"""
        . "{REPOSITORY}/install.sh"; logs=$HOME; trap interrupted TERM
        step "compiling" sh -c 'exec >held; echo up; sleep 100'
    """
    with subprocess.Popen(
        ["sh", "-c", script],
        env=variables,
        cwd=machine.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as running:
        with held.open() as pipe:
            assert pipe.readline() == "up\n"
            running.send_signal(signal.SIGTERM)
            assert pipe.read() == "", "the pipe ends when the last process below holds it no more"
        _, errors = running.communicate(timeout=30)
    assert running.returncode == 1
    assert b"interrupted" in errors


def test_gpu_asks_for_torch_and_the_options_decide(machine: Machine) -> None:
    script = 'choose_extras >&2; printf "%s" "$extras"'
    assert machine.functions(script).stdout == "[vision,websockets,mcp]"
    machine.add("nvidia-smi", "exit 9")
    assert machine.functions(script).stdout == "[vision,websockets,mcp]", "a driver without a GPU"
    assert machine.functions("torch=yes; " + script).stdout == "[vision,websockets,mcp,torch]"
    machine.add("nvidia-smi", "echo GPU 0")
    assert machine.functions(script).stdout == "[vision,websockets,mcp,torch]"
    assert "PyTorch" in machine.functions(script).stderr
    assert machine.functions("torch=no; " + script).stdout == "[vision,websockets,mcp]"
    assert machine.functions("dev=yes; " + script).stdout == "[dev,vision,websockets,mcp,torch]"
    script = "speech=yes; " + script
    assert machine.functions(script).stdout == "[vision,websockets,mcp,torch,speech]"


def test_only_what_is_installed_counts_as_a_change(machine: Machine) -> None:
    machine.add_python()
    module = machine.home / "runner/types.py"
    training = machine.home / "tests/ember/train.py"
    for path in (module, training, machine.home / "pyproject.toml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    before = machine.functions("fingerprint").stdout
    training.write_text("2")
    assert machine.functions("fingerprint").stdout == before
    module.write_text("2")
    changed = machine.functions("fingerprint").stdout
    assert changed != before
    assert machine.functions("extras=[torch]; fingerprint").stdout not in (before, changed)


def _installed(machine: Machine) -> Path:
    prefix = machine.home / ".local/share/hearth/venv"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "hearth").write_text("#!/bin/sh\n")
    (prefix / "hearth-install.txt").write_text("engine=native\n")
    launcher = machine.home / ".local/bin/hearth"
    launcher.parent.mkdir(parents=True)
    launcher.symlink_to(prefix / "bin" / "hearth")
    models = machine.home / ".local/share/hearth/models"
    models.mkdir()
    (models / "weights").write_bytes(b"weights")
    return prefix


def test_uninstall_removes_the_program_and_keeps_the_models(machine: Machine) -> None:
    prefix = _installed(machine)
    done = machine.install_sh("--uninstall")
    assert done.returncode == 0, done.stderr
    assert f"removed {prefix}\n" in done.stdout
    assert "kept the models" in done.stdout
    assert not prefix.exists()
    assert not (machine.home / ".local/bin/hearth").is_symlink()
    assert (machine.home / ".local/share/hearth/models/weights").exists()


def test_manual_pages_and_completion_come_and_go(machine: Machine) -> None:
    prefix = _installed(machine)
    (machine.home / ".local/bin/hearth").unlink()
    fish = machine.home / ".config/fish/completions"
    fish.mkdir(parents=True)
    pages = prefix / "share/man/man1"
    pages.mkdir(parents=True)
    (pages / "hearth.1").write_text("page")
    (pages / "hearth-run.1").write_text("page")
    command = prefix / "bin/hearth"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -P -m cli.main "$@"\n'
    )
    command.chmod(0o755)
    assert machine.functions("link; link_help").returncode == 0
    assert (fish / "hearth.fish").exists()
    page = machine.home / ".local/share/man/man1/hearth-run.1"
    assert page.read_text() == "page"
    assert machine.functions("uninstall").returncode == 0
    assert not [*fish.iterdir(), *page.parent.iterdir()]


def test_uninstall_with_purge_leaves_nothing(machine: Machine) -> None:
    _installed(machine)
    (machine.home / ".local/state/hearth").mkdir(parents=True)
    (machine.home / ".cache/hearth/wheels/x").mkdir(parents=True)
    done = machine.install_sh("--uninstall", "--purge")
    assert done.returncode == 0, done.stderr
    assert not list(machine.home.rglob("*hearth*/*"))


def test_purge_keeps_a_store_that_only_a_variable_names(machine: Machine) -> None:
    _installed(machine)
    shared = machine.home / "shared-models"
    shared.mkdir()
    machine.variables["HEARTH_MODELS"] = str(shared)
    done = machine.install_sh("--uninstall", "--purge")
    assert f"kept {shared}" in done.stdout
    assert shared.is_dir()


def test_uninstall_stops_the_daemon_of_this_installation_only(machine: Machine) -> None:
    prefix = _installed(machine)
    other = machine.home / "other/bin"
    other.mkdir(parents=True)
    running = []
    for folder in (prefix / "bin", other):
        python = folder / "python"
        python.write_text("#!/bin/sh\nexec >&2; read line\n")
        python.chmod(0o755)
        command = [str(python), "-P", "-m", "runner.server"]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE))
    ours, others = running
    done = machine.install_sh("--uninstall")
    assert f"stopped the daemon that was running (process {ours.pid})" in done.stdout
    assert str(others.pid) not in done.stdout
    assert ours.wait(timeout=30) == -signal.SIGTERM
    assert others.poll() is None
    others.communicate(b"end\n", timeout=30)
    ours.communicate(timeout=30)


def test_uninstall_removes_the_service_of_this_installation_only(machine: Machine) -> None:
    unit = machine.home / ".config/systemd/user/hearth.service"
    unit.parent.mkdir(parents=True)
    entry = machine.home / ".local/share/applications/hearth.desktop"
    entry.parent.mkdir(parents=True)
    tray = machine.home / ".config/autostart/hearth-tray.desktop"
    tray.parent.mkdir(parents=True)
    others = (unit.with_name("hearth.socket"), entry, tray)
    told = machine.home / "told"
    machine.add("systemctl", f'echo "$@" >> {told}')
    prefix = _installed(machine)
    unit.write_text('ExecStart="/other/bin/python" "-m" "runner.server"')
    for other in others:
        other.write_text("Exec=/other/bin/python -m cli.main open")
    marked = (prefix / "hearth-install.txt").read_bytes()
    machine.install_sh("--uninstall")
    assert all(path.exists() for path in (unit, *others))
    prefix.mkdir()
    (prefix / "hearth-install.txt").write_bytes(marked)
    unit.write_text(f'ExecStart="{prefix}/bin/python" "-m" "runner.server"')
    entry.write_text(f'Exec=env "{prefix}/bin/python" -m cli.main open')
    tray.write_text(f'Exec=env "{prefix}/bin/python" -m cli.main tray')
    done = machine.install_sh("--uninstall")
    assert done.returncode == 0, done.stderr
    assert f"removed {unit}\n" in done.stdout
    assert not any(path.exists() for path in (unit, *others))
    assert told.read_text() == "--user disable --now hearth.socket hearth.service\n"


def test_uninstall_twice_says_that_nothing_is_there(machine: Machine) -> None:
    _installed(machine)
    machine.install_sh("--uninstall", "--purge")
    done = machine.install_sh("--uninstall")
    assert done.returncode == 0
    assert "nothing of hearth" in done.stdout


def test_uninstall_leaves_a_folder_and_a_command_of_others(machine: Machine) -> None:
    folder = machine.home / "elsewhere"
    folder.mkdir()
    (folder / "file").write_text("mine")
    command = machine.home / ".local/bin/hearth"
    command.parent.mkdir(parents=True)
    command.write_text("another hearth")
    done = machine.install_sh("--uninstall", "--prefix", str(folder))
    assert done.returncode == 0
    assert "stays" in done.stdout
    assert (folder / "file").read_text() == "mine"
    assert command.read_text() == "another hearth"


def test_launcher_replaces_its_own_link_and_nothing_else(machine: Machine) -> None:
    launcher = machine.home / ".local/bin/hearth"
    done = machine.functions('link; link; say "$command"')
    assert done.stdout == f"{launcher}\n"
    launcher.unlink()
    launcher.write_text("another hearth")
    done = machine.functions('link; say "$command"')
    assert done.stdout.splitlines()[-1] == f"{machine.home}/.local/share/hearth/venv/bin/hearth"
    assert launcher.read_text() == "another hearth"


@pytest.mark.parametrize(
    ("shell", "line"),
    [("/bin/zsh", ".zshrc"), ("/bin/bash", ".bashrc"), ("/usr/bin/fish", "fish_add_path")],
)
def test_folder_missing_from_path_gives_the_line_for_the_shell(
    machine: Machine, shell: str, line: str
) -> None:
    machine.variables["SHELL"] = shell
    done = machine.functions("link; path_hint")
    assert "not on your PATH" in done.stdout
    assert line in done.stdout
    machine.variables["PATH"] = f"{machine.home}/.local/bin:{machine.commands}"
    assert machine.functions("link; path_hint").stdout == ""


def test_shell_scripts_pass_shellcheck() -> None:
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shellcheck = shutil.which("shellcheck", path=search)
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        [
            shellcheck,
            *(
                str(REPOSITORY / n)
                for n in ("install.sh", "release/get.sh", ".ci/run", "cli/shells/hearth.bash")
            ),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
