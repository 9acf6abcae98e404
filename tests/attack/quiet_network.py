"""python -m tests.attack.quiet_network [--minutes N]: a first start of hearth and its everyday use
in a network namespace whose only way out is a TUN device, every packet on which is counted.

Prints {"rounds", "packets", "first"} as JSON. Needs root or user namespaces, and /dev/net/tun.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

NEW_MOUNTS, NEW_USER, NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
BIND, PRIVATE = 0x1000, 0x40000 | 0x4000
TUN_SET_INTERFACE, TUN, NO_PACKET_INFO = 0x400454CA, 0x0001, 0x1000
SET_FLAGS, SET_ADDRESS, SET_NETMASK, ADD_ROUTE = 0x8914, 0x8916, 0x891C, 0x890B
UP_AND_RUNNING, ROUTE_UP = 0x1 | 0x40, 0x1
OUTSIDE = "192.0.2.1"  # of RFC 5737: nobody's
PORT = 4871
PAUSE_S = 20.0  # between rounds


class Packets:
    """What leaves the namespace. first: the first ones, as hexadecimal digits."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []
        self.arrived = threading.Event()
        self._device = os.open("/dev/net/tun", os.O_RDWR)
        request = struct.pack("16sH22x", b"tun0", TUN | NO_PACKET_INFO)
        fcntl.ioctl(self._device, TUN_SET_INTERFACE, request)
        threading.Thread(target=self._read, daemon=True).start()

    def clear(self) -> None:
        """Count from the beginning."""
        self.count, self.first = 0, []

    def _read(self) -> None:
        while packet := os.read(self._device, 65536):
            self.count += 1
            if len(self.first) < 5:
                self.first.append(packet[:64].hex())
            self.arrived.set()


def enter_namespaces(resolver: Path) -> None:
    """A network of our own, where names are asked of OUTSIDE. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    flags = NEW_MOUNTS | NEW_NETWORK | (NEW_USER if user else 0)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "no namespaces")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    resolver.write_text(f"nameserver {OUTSIDE}\n")
    libc.mount(None, b"/", None, PRIVATE, None)
    target = os.path.realpath("/etc/resolv.conf").encode()
    if libc.mount(str(resolver).encode(), target, None, BIND, None) != 0:
        raise OSError(ctypes.get_errno(), "resolv.conf cannot be replaced")


def raise_network() -> Packets:
    """Loopback, and a default route to the counter."""
    for name in ("all", "default"):  # the kernel's own greetings
        Path(f"/proc/sys/net/ipv6/conf/{name}/accept_ra").write_text("0")
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6").write_text("0")
    packets = Packets()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for number, address in ((SET_ADDRESS, "10.9.0.2"), (SET_NETMASK, "255.255.255.0")):
            fcntl.ioctl(control, number, struct.pack("16s16s", b"tun0", _address(address)))
        for device in (b"lo", b"tun0"):
            fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH22x", device, UP_AND_RUNNING))
        tunnel = ctypes.create_string_buffer(b"tun0")
        any_, route = _address("0.0.0.0"), struct.Struct("L16s16s16sHhLPhPLLH")
        fields = (0, any_, any_, any_, ROUTE_UP, 0, 0, 0, 0, ctypes.addressof(tunnel), 0, 0, 0)
        fcntl.ioctl(control, ADD_ROUTE, route.pack(*fields))
    return packets


def _address(text: str) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def counts(packets: Packets) -> bool:
    """Whether the counter sees a packet that does leave, and a name that is asked for."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(b"x", (OUTSIDE, 9))
    seen = packets.arrived.wait(10)
    packets.clear()
    return seen


def use(folder: Path, minutes: float) -> int:
    """Use hearth as a new user does, until minutes have passed; how many rounds."""
    own = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    home = {"HOME": str(folder), "HEARTH_HOME": str(folder / "hearth")}
    env = {**own, **home, "HEARTH_HOST": f"127.0.0.1:{PORT}"}
    modelfile = folder / "Modelfile"
    modelfile.write_text("FROM ember\nSYSTEM Answer briefly.\n")
    commands: tuple[tuple[str, ...], ...] = (
        ("--version",),
        ("run", "ember", "What can you do?"),
        ("list",),
        ("create", "mine", "-f", str(modelfile)),
        ("show", "mine"),
        ("ps",),
        ("status",),
        ("stop", "--all"),
    )
    rounds, until_s = 0, time.monotonic() + minutes * 60
    while not rounds or time.monotonic() < until_s:
        for command in commands:
            subprocess.run(
                [sys.executable, "-m", "cli.main", *command],
                env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        for path in ("/", "/docs", "/health", "/v1/models", "/metrics"):
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=60).read()
        _chat()
        rounds += 1
        time.sleep(max(0.0, min(PAUSE_S, until_s - time.monotonic())))
    subprocess.run([sys.executable, "-m", "cli.main", "shutdown"], env=env, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return rounds


def _chat() -> None:
    turns = [{"role": "user", "content": "What is 3 + 4?"}]
    body = json.dumps({"model": "ember", "messages": turns, "max_tokens": 16}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/chat/completions", body, {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=120).read()


def main() -> int:
    """Run it; 77: this machine does not allow it."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack.quiet_network")
    parser.add_argument("--minutes", type=float, default=0.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            enter_namespaces(Path(folder) / "resolv.conf")
            packets = raise_network()
        except OSError as error:
            print(error, file=sys.stderr)
            return 77
        if not counts(packets):
            print("the counter does not see what leaves", file=sys.stderr)
            return 1
        rounds = use(Path(folder), options.minutes)
    print(json.dumps({"rounds": rounds, "packets": packets.count, "first": packets.first}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
