"""The head dies and comes back: nothing hangs, and what was deployed is deployed again."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.cluster.machines import Machines, send, wait_for
from tests.conftest import running_daemon


def test_a_new_head_gets_the_deployments_of_the_daemon(tmp_path: Path) -> None:
    machines = Machines.start(tmp_path, 1)
    try:
        with running_daemon(machines.nodes[0].home, ("echo",)) as daemon:
            state = json.loads((daemon.home / "state" / "daemon.json").read_text())
            machines.url, machines.token = daemon.url, state["token"]
            machines.deploy("echo", 1)
            head = machines.nodes[0]
            processes = [each.pid for each in head.processes() if each.is_running()]
            send(processes, signal.SIGKILL)
            refused = machines.chat("echo", "anybody there")
            assert refused.status_code == 503, refused.text
            assert int(refused.headers["retry-after"]) > 0
            head.run("stop")
            ran = head.run(
                "start", "--head", "--port", "0", "--ip", "127.0.0.1", "--cpus", "4",
                "--object-store-mb", "80",
            )  # fmt: skip
            assert ran.returncode == 0, ran.stderr
            answer = wait_for(
                lambda: (told := machines.chat("echo", "back again")).status_code == 200 and told,
                "an answer from the new head",
                300.0,
            )
            assert answer.json()["choices"][0]["message"]["content"] == "back again"
            machines.warm("echo", 1)
    finally:
        machines.stop()
