"""A cluster of two nodes, with ember on two replicas, for all tests of this folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator

import pytest

from tests.cluster.machines import Machines
from tests.conftest import running_daemon

HAS_RAY = importlib.util.find_spec("ray") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They take minutes, and Ray."""
    for item in items:
        if "tests/cluster/" in item.nodeid or item.path.parent.name == "cluster":
            item.add_marker(pytest.mark.slow)
            if not HAS_RAY:
                item.add_marker(pytest.mark.skip(reason="Ray is not installed: make cluster"))


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two nodes and a daemon on the head."""
    root = tmp_path_factory.mktemp("cluster")
    started = Machines.start(root, 2)
    try:
        with running_daemon(started.nodes[0].home, ("echo",)) as daemon:
            state = json.loads((daemon.home / "state" / "daemon.json").read_text())
            started.url, started.token = daemon.url, state["token"]
            started.deploy("ember", 2)
            yield started
    finally:
        started.stop()
