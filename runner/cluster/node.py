"""python -m runner.cluster.node start --head | start --address HOST:PORT | stop: this machine's
node.

`ray start --block` runs in the background with the cluster's token; its process id is kept, so that
stop ends that node and no other one of the machine. A node joins a head of its own version of
hearth only.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import importlib.util
import ipaddress
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from runner.authority import is_loopback
from runner.cluster.cluster_state import (
    NodeState,
    forget_node,
    read_node,
    write_node,
)
from runner.cluster.environment import ray_environment
from runner.cluster.fit import VERSION_LABEL
from runner.cluster.token import make_token, token_path
from runner.programs import DETACHED_OPTIONS
from runner.settings import load

ANSWER_S: Final = 5.0
START_S: Final = 120.0
STOP_S: Final = 30.0
DEFAULT_PORT: Final = 6379
# Ray takes 127.0.0.1 to mean an address that others reach, and gives that to all of the cluster;
# another one of the loopback network stays what it is. Elsewhere than on Linux there is no other
LOOPBACK: Final = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="hearth cluster")
    actions = parser.add_subparsers(dest="action", required=True)
    start_options = actions.add_parser("start")
    which = start_options.add_mutually_exclusive_group(required=True)
    which.add_argument("--head", action="store_true")
    which.add_argument("--address")
    start_options.add_argument("--ip", default=None)
    start_options.add_argument("--port", type=int, default=DEFAULT_PORT)
    start_options.add_argument("--cpus", type=int, default=None)
    start_options.add_argument("--gpus", type=int, default=None)
    start_options.add_argument("--object-store-mb", type=int, default=128)
    actions.add_parser("stop")
    options = parser.parse_args()
    try:
        return _start(options) if options.action == "start" else _stop()
    except NodeError as error:
        print(f"hearth: {error}", file=sys.stderr)
        return 1


class NodeError(Exception):
    """What keeps a node from starting or ending, for people."""


def _start(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("ray") is None:
        raise NodeError(
            'Ray is not installed: run pip install "hearth[cluster]" in hearth\'s own environment'
        )
    state = load().state_dir
    if (node := read_node(state)) is not None and _is_running(node):
        raise NodeError(f"this machine is in the cluster at {node.address} already")
    if options.head:
        token, ip = make_token(), _address_here(options.ip or LOOPBACK)
        address = f"{ip}:{options.port or _free_port(ip)}"
    else:
        token, address = token_path(), options.address
        _check_answers(address)
        ip = _address_here(options.ip or _own_address(address))
        if is_loopback(ip) and not is_loopback(address.rpartition(":")[0]):
            raise NodeError(
                f"--ip {options.ip} is reached from this machine only, and the head is at"
                f" {address}; give the address of this machine that the head reaches"
            )
        if not token.is_file():
            raise NodeError(f"{token} is missing; copy that file from the head of the cluster")
    environment = {**ray_environment(token), "HEARTH_HOME": os.environ.get("HEARTH_HOME", "")}
    environment = {name: value for name, value in environment.items() if value}
    if not options.head:
        check_version(_head_version(address, environment), address)
    process = _run_ray(_arguments(options, address, ip), environment, state, address)
    started = psutil.Process(process.pid).create_time()
    port = _free_port(ip)
    write_node(
        state, NodeState(address, process.pid, started, str(token), port, bool(options.head))
    )
    print(f"{'the head' if options.head else 'a node'} of the cluster at {address} runs here")
    if options.head and is_loopback(ip):
        print("other machines cannot join it; for them, give an address of this one with --ip")
    return 0


def _arguments(options: argparse.Namespace, address: str, ip: str) -> list[str]:
    version = importlib.metadata.version("hearth")
    arguments = [
        *("start", "--block", f"--node-ip-address={ip}"),
        *("--disable-usage-stats", "--include-log-monitor=false"),
        f"--object-store-memory={options.object_store_mb << 20}",
        f"--labels={VERSION_LABEL}={version}",
    ]
    if options.head:
        port = address.rpartition(":")[2]
        arguments += ["--head", "--include-dashboard=false", "--no-monitor", f"--port={port}"]
    else:
        arguments.append(f"--address={address}")
    if options.cpus is not None:
        arguments.append(f"--num-cpus={options.cpus}")
    if options.gpus is not None:
        arguments.append(f"--num-gpus={options.gpus}")
    return arguments


def _spawn(
    arguments: list[str], environment: dict[str, str], state: Path
) -> tuple[subprocess.Popen[bytes], Path]:
    state.mkdir(parents=True, exist_ok=True)
    path = state / "cluster-node.log"
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", *arguments]
    with path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            **DETACHED_OPTIONS,
        )
    return process, path


def _run_ray(
    arguments: list[str], environment: dict[str, str], state: Path, address: str
) -> subprocess.Popen[bytes]:
    """Ray's process, once it says that its node runs. On a machine so busy that Ray gives it up
    before, after 30 s, it is started again. Raises NodeError with the last of what Ray said."""
    until_s = time.monotonic() + START_S
    while True:
        process, log = _spawn(arguments, environment, state)
        while process.poll() is None and time.monotonic() < until_s:
            if "Ray runtime started" in log.read_text(errors="replace"):
                return process
            time.sleep(0.1)
        process.terminate()
        process.wait()
        said = log.read_text(errors="replace")
        if "timed out during startup" not in said or time.monotonic() > until_s:
            lines = [line for line in said.splitlines() if line.strip()]
            last = " / ".join(lines[-3:]) or "Ray says nothing"
            raise NodeError(f"no node could be started for {address}: {last} ({log})")


def _stop() -> int:
    state = load().state_dir
    node = read_node(state)
    if node is None:
        raise NodeError("this machine is in no cluster")
    if _is_running(node):
        process = psutil.Process(node.pid)
        children = process.children(recursive=True)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
        _, left = psutil.wait_procs([process, *children], timeout=STOP_S)
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    forget_node(state)
    print(f"this machine has left the cluster at {node.address}")
    return 0


def _is_running(node: NodeState) -> bool:
    try:
        return abs(psutil.Process(node.pid).create_time() - node.started_s) < 1.0
    except psutil.NoSuchProcess:
        return False


def _check_answers(address: str) -> None:
    """Raises NodeError where nobody answers."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise NodeError(f"{address} is not an address; use HOST:PORT as the head prints it")
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except OSError as error:
        raise NodeError(
            f"nothing answers at {address} ({error.strerror or error}): does the head run, and can"
            " this machine reach that port?"
        ) from None


def _head_version(address: str, environment: Mapping[str, str]) -> str | None:
    """The version of hearth that the head has; None where it says none. Raises NodeError."""
    os.environ.update(environment)  # before Ray is imported, which reads it then
    from ray.exceptions import AuthenticationError, RayError

    raylet: Any = importlib.import_module("ray._raylet")
    try:
        nodes = raylet.GcsClient(address=address).get_all_node_info(timeout=ANSWER_S)
    except AuthenticationError:
        raise NodeError(
            f"the head at {address} has another token than {environment['RAY_AUTH_TOKEN_PATH']};"
            " copy that file from the head again"
        ) from None
    except RayError as error:
        first = str(error).partition("\n")[0][:200]
        raise NodeError(f"{address} does not answer as the head of a cluster: {first}") from None
    heads = [node for node in nodes.values() if node.is_head_node]
    return next((found for each in heads if (found := each.labels.get(VERSION_LABEL))), None)


def check_version(head: str | None, address: str) -> None:
    """Raises NodeError where the head has another version of hearth than this machine."""
    own = importlib.metadata.version("hearth")
    if head is not None and head != own:
        raise NodeError(
            f"this machine has hearth {own}, and the head at {address} has {head}; all machines of"
            " a cluster need the same version"
        )


def _address_here(text: str) -> str:
    """The address as Ray shall have it. Raises NodeError for one that is not of this machine."""
    try:
        ipaddress.IPv4Address(text)
        _free_port(text)
    except ValueError:
        raise NodeError(f"--ip {text} is not an IPv4 address; use one such as 10.0.0.1") from None
    except OSError as error:
        raise NodeError(
            f"--ip {text} is not an address of this machine ({error.strerror})"
        ) from None
    return LOOPBACK if text == "127.0.0.1" else text


def _own_address(address: str) -> str:
    """The address of this machine that the head sees."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_S) as connected:
        return str(connected.getsockname()[0])


def _free_port(ip: str) -> int:
    with socket.socket() as sock:
        sock.bind((ip, 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
