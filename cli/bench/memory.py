"""How much memory a server uses, seen from outside: resident bytes of its process tree."""

from __future__ import annotations

import psutil


def tree_rss_bytes(pid: int) -> int | None:
    """Resident memory of a process and all its descendants; None when it is gone. A page that
    two of them share counts twice."""
    try:
        root = psutil.Process(pid)
        return sum(_rss_bytes(one) for one in [root, *root.children(recursive=True)])
    except psutil.Error:
        return None


def _rss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def listening_pid(port: int) -> int | None:
    """The process of this user that listens on a TCP port of this machine, where one is found."""
    for process in psutil.process_iter():
        try:
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return int(process.pid)
        except psutil.Error:
            continue
    return None
