"""Completion in real shells: what the Tab key makes of a line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from registry.store import Store
from tests.echo_models import install_echo
from tests.integration.cli_process import environment

SHELLS = Path(__file__).parents[2] / "cli" / "shells"
SETUP = {
    "bash": (["--norc", "--noprofile"], f". {SHELLS}/hearth.bash"),
    "zsh": (["-f"], f"autoload -U compinit; compinit -D -u; . {SHELLS}/_hearth"),
}
# Completes as hearth does, and says what it was called with otherwise.
LAUNCHER = f"""#!/bin/sh
[ -z "$_HEARTH_COMPLETE" ] || exec {sys.executable} -P -m cli.main "$@"
printf 'RAN['; printf '<%s>' "$@"; echo ']'
"""
LIMIT_S = 60
LINES = {
    "show zephyr:0\t": "<show><zephyr:0.5b>",  # bash takes the colon for the end of a word
    "show qu\t": "<show><quartz:9b-it>",
    "rm quartz:9b-it zephyr:7\t": "<rm><quartz:9b-it><zephyr:7b>",
    "shut\t": "<shutdown>",
    "service unin\t": "<service><uninstall>",
    "create mine --draft-q\t": "<create><mine><--draft-quantize>",
    "run quartz:9b-it -p num_g\t4": "<run><quartz:9b-it><-p><num_gpu=4>",
    "create -f a-f\t": "<create><-f><a-file>",
}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a shell whose hearth has models and no daemon."""
    folder = tmp_path_factory.mktemp("shell")
    store = Store.open(folder / "home" / "models")
    for name in ("zephyr:0.5b", "zephyr:7b", "quartz:9b-it"):
        install_echo(store, name)
    store.close()
    (folder / "bin").mkdir()
    launcher = folder / "bin" / "hearth"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o700)
    (folder / "a-file").touch()
    more = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder),
            "TERM": "dumb", "INPUTRC": "/dev/null",
            "PYTHONPATH": str(SHELLS.parents[1])}  # fmt: skip
    return environment(folder / "home", "127.0.0.1:1", **more)


@pytest.mark.parametrize("shell", SETUP)
def test_the_tab_key_completes(shell: str, env: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    options, setup = SETUP[shell]
    became = {}
    with pexpect.spawn(shell, options, env=env, timeout=LIMIT_S, cwd=env["HOME"]) as tty:
        tty.sendline(f"{setup}; echo re''ady")
        tty.expect_exact("ready")
        for line in LINES:
            tty.send(f"hearth {line}\r")
            tty.expect(r"RAN\[(.*?)\]")
            assert tty.match is not None
            became[line] = tty.match[1].decode()
        tty.sendline("exit")
        tty.expect(pexpect.EOF)
    assert became == LINES


def test_fish_offers_the_same_with_what_it_means(env: dict[str, str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")

    def offered(line: str) -> list[str]:
        words = ["fish", "--no-config", "-c",
                 f"source {SHELLS}/hearth.fish; complete -C 'hearth {line}'"]  # fmt: skip
        ran = subprocess.run(words, env=env, cwd=env["HOME"], capture_output=True,
                             text=True, timeout=LIMIT_S, check=True)  # fmt: skip
        return ran.stdout.splitlines()

    assert offered("show zephyr:") == ["zephyr:0.5b", "zephyr:7b"]
    assert offered("shut") == ["shutdown\tStop the daemon once its answers are complete"]
    assert offered("service unin") == ["uninstall"]
    assert offered("create -f a-f") == ["a-file"]
