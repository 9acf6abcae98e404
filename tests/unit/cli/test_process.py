"""A server's process, seen from outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import psutil
import pytest

from cli.errors import CliError
from cli.process import has_ended, own_process, tree_rss_bytes


def test_children_count_too() -> None:
    alone = tree_rss_bytes(os.getpid())
    wait = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        both = tree_rss_bytes(os.getpid())
        child.communicate(b"\n")
    assert alone is not None
    assert both is not None
    assert both > alone


def test_a_process_that_is_gone_has_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert tree_rss_bytes(child.pid) is None


def test_a_process_is_the_daemon_only_if_it_listens_on_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert own_process(os.getpid(), port).pid == os.getpid()
        with pytest.raises(CliError, match=f"process {os.getppid()}, does not belong to this user"):
            own_process(os.getppid(), port)
    with pytest.raises(CliError, match="stop it where it was started"):
        own_process(os.getpid(), port)


def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    wait = [sys.executable, "-c", "input()"]
    with subprocess.Popen(wait, stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        assert not has_ended(process)
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(process)
    assert has_ended(process)
