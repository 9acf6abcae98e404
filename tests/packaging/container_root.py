"""`python -m tests.packaging.container_root`: builds the Dockerfile and lives with its container,
on a machine that reaches no registry of images.

A bare root made by debootstrap stands for debian:trixie-slim, from which it differs by
documentation and by what Debian has mended since; everything else is the Dockerfile's own, built
and run by podman with images of its own under build/container. Needs root, Debian's debootstrap,
podman, runc and containernetworking-plugins, and a Debian mirror; pip's index for what hearth runs
on, and minutes for llama.cpp unless dist/ has the wheels. --built tries the image that is there.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build" / "container"
BASE = "docker.io/library/debian:trixie-slim"
IMAGE = "localhost/hearth"
MIRROR = "http://deb.debian.org/debian"
LIMIT_S = 120.0
CERTIFICATES = "/run/certificates.pem"  # of a machine whose network has its own
# As compose.yaml has it
CLOSED = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")
ZOMBIES = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"
QUESTION = {"model": "ember", "messages": [{"role": "user", "content": "What can you do?"}]}


class Failed(Exception):
    """What the container did not do as it should."""


def command(*words: str) -> list[str]:
    """podman with images and containers of its own."""
    store = ("--root", str(WORK / "storage"), "--runroot", str(WORK / "run"))
    # crun refuses a machine that mounts control groups of both versions
    how = ("--storage-driver=overlay", "--cgroup-manager=cgroupfs", "--runtime=runc")
    return ["podman", *store, *how, *words]


def podman(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it. Raises CalledProcessError unless check is False."""
    settings: dict[str, Any] = {"text": True, "check": True, "cwd": REPOSITORY, **options}
    return subprocess.run(command(*words), **settings)


def output(*words: str) -> str:
    """What podman prints."""
    return podman(*words, stdout=subprocess.PIPE).stdout.strip()


def make_base() -> None:
    """The image that the Dockerfile begins with."""
    if podman("image", "exists", BASE, check=False).returncode == 0:
        return
    root = WORK / "base"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    subprocess.run(["debootstrap", "--variant=minbase", "trixie", str(root), MIRROR], check=True)
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        podman("import", "-", BASE, stdin=tar.stdout)
    shutil.rmtree(root)


def build() -> None:
    """The image, by the Dockerfile."""
    words = ["build", "--pull=never", "--format=docker", "--isolation=chroot", "-t", IMAGE]
    given = os.environ.get("SSL_CERT_FILE")
    if given:
        (WORK / "pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")
        words += [f"--volume={given}:{CERTIFICATES}:ro"]
        words += [f"--volume={WORK / 'pip.conf'}:/etc/pip.conf:ro"]
    podman(*words, ".")


def limits() -> list[str]:
    """podman's own are above what a root without CAP_SYS_RESOURCE may set."""
    of = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    hard = {name: min(resource.getrlimit(number)[1], 16384) for name, number in of.items()}
    return [f"--ulimit={name}={most}:{most}" for name, most in hard.items()]


def run_once(volume: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A container that ends by itself."""
    options = (*limits(), "--network=none", f"--volume={volume}:/data")
    return podman("run", "--rm", *options, IMAGE, *words, check=False, capture_output=True)


@contextmanager
def running(volume: str) -> Iterator[str]:
    """A container that serves, by its name."""
    name = f"hearth-{os.getpid()}"
    options = (*limits(), *CLOSED, f"--volume={volume}:/data", "--publish=127.0.0.1::4327")
    podman("run", "--detach", f"--name={name}", "--stop-timeout=45", *options, IMAGE,
           stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        yield name
    except BaseException:
        podman("logs", name, check=False)
        raise
    finally:
        podman("rm", "--force", name, check=False, stdout=subprocess.DEVNULL)


def inside(name: str, script: str) -> str:
    """What a shell in the container prints."""
    return output("exec", name, "sh", "-c", script)


def wait_healthy(name: str) -> None:
    """Wait for the Dockerfile's own health check."""
    deadline = time.monotonic() + LIMIT_S
    while podman("healthcheck", "run", name, check=False, capture_output=True).returncode:
        if time.monotonic() > deadline:
            raise Failed(f"not healthy within {LIMIT_S:g} s")
        time.sleep(0.2)


def expect(what: str, found: object, wanted: object) -> None:
    """Say what was found. Raises Failed when it is not what was wanted."""
    print(f"{what}: {found}", flush=True)
    if found != wanted:
        raise Failed(f"{what}: {found!r} and not {wanted!r}")


def check_image() -> None:
    """What the image holds, and what it says of itself."""
    (about,) = json.loads(output("image", "inspect", IMAGE))
    expect("user", about["Config"]["User"], "10001:10001")
    expect("volume", list(about["Config"]["Volumes"]), ["/data"])
    expect("health check", about["Healthcheck"]["Test"], ["CMD", "hearth", "status", "--ready"])
    print(f"size: {about['Size'] / 1e6:.0f} MB")


def check_start(volume: str) -> str:
    """Without a key it does not start. Returns the key that was made."""
    refused = run_once(volume)
    expect("exit code without a key", refused.returncode, 1)
    expect("it says to make one", "Create a key first: hearth key add NAME" in refused.stderr, True)
    made = run_once(volume, "key", "add", "tests")
    if made.returncode:
        raise Failed(made.stderr)
    return made.stdout.split()[-1]


def check_inside(name: str) -> None:
    """Who runs, and what else is there."""
    expect("process 1", inside(name, "tr '\\0' ' ' </proc/1/cmdline").split()[1:],
           ["-P", "-m", "runner.server"])  # fmt: skip
    expect("user number", inside(name, "id -u"), "10001")
    expect("compilers", inside(name, "command -v cc c++ gcc g++ make; true"), "")
    expect("levels of kernels", inside(name, "ls /opt/hearth/lib/python3*/site-packages/kernels/"
           "native/lib | grep -c ^llamacpp"), "4")  # fmt: skip


def check_answers(url: str, key: Mapping[str, str]) -> None:
    """A chat over the published port, with a key and without."""
    refused = httpx.post(f"{url}/v1/chat/completions", json=QUESTION, timeout=LIMIT_S)
    expect("status without a key", refused.status_code, 401)
    answer = httpx.post(f"{url}/v1/chat/completions", json=QUESTION, headers=key, timeout=LIMIT_S)
    expect("status with a key", answer.status_code, 200)
    text = answer.json()["choices"][0]["message"]["content"]
    expect("ember answers", bool(text.strip()), True)
    print(f"  {text.strip()!r}")


def check_crash(name: str, url: str, key: Mapping[str, str]) -> None:
    """A worker that dies leaves nothing, and the next question gets another."""
    worker = inside(name, "grep -l 'runner.worker' /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -n")
    workers = [pid for pid in worker.split() if pid != "1"]
    inside(name, f"kill -9 {workers[0]}")
    answer = httpx.post(f"{url}/v1/chat/completions", json=QUESTION, headers=key, timeout=LIMIT_S)
    expect("status after a worker was killed", answer.status_code, 200)
    expect("zombies", inside(name, ZOMBIES), "0")


def check_drain(name: str, url: str, key: Mapping[str, str]) -> None:
    """An answer in progress is completed after SIGTERM, and the exit code is 0."""
    asked = QUESTION | {"stream": True, "max_tokens": 1500, "ignore_eos": True}
    with (
        httpx.Client(timeout=LIMIT_S, headers=key) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=asked) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        began_s = time.monotonic()
        with subprocess.Popen(command("stop", name), stdout=subprocess.DEVNULL) as stopping:
            last = [line for line in lines if line][-1]
            stopping.wait(LIMIT_S)
    expect("the stream's last line", last, "data: [DONE]")
    expect("exit code", output("inspect", "--format={{.State.ExitCode}}", name), "0")
    print(f"stopped after {time.monotonic() - began_s:.1f} s")


def main() -> None:
    """All of it; the steps are printed."""
    if sys.argv[1:] != ["--built"]:
        WORK.mkdir(parents=True, exist_ok=True)
        make_base()
        began_s = time.monotonic()
        build()
        print(f"built in {time.monotonic() - began_s:.0f} s")
    check_image()
    volume = output("volume", "create")
    try:
        key = {"Authorization": f"Bearer {check_start(volume)}"}
        with running(volume) as name:
            wait_healthy(name)
            url = f"http://{output('port', name, '4327/tcp')}"
            check_inside(name)
            check_answers(url, key)
            check_crash(name, url, key)
            check_drain(name, url, key)
    finally:
        podman("volume", "rm", "--force", volume, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
