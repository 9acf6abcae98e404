"""The daemon as a process of this machine: whether it is this user's, and how much memory it
uses."""

from __future__ import annotations

import psutil

from cli.errors import CliError


def own_process(pid: int, port: int) -> psutil.Process:
    """The process pid, if this user may end it and it listens on a TCP port here. A daemon behind
    a tunnel or in a container says a number that is another process's here. Raises CliError."""
    try:
        process = psutil.Process(pid)
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return process
    except psutil.Error:
        pass
    raise CliError(
        f"the daemon on port {port}, process {pid}, does not belong to this user on this machine; "
        "stop it where it was started"
    )


def has_ended(process: psutil.Process) -> bool:
    """Whether it computes no more. Its parent may not have taken note yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


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
