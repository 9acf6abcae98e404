"""Memory of a server seen from outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from cli.bench.memory import listening_pid, tree_rss_bytes


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


def test_the_process_that_listens_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert listening_pid(listening.getsockname()[1]) == os.getpid()
