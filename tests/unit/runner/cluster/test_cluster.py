"""What the daemon does with a deployed model that has become another one in its own store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from registry.store import Store
from runner.cluster.bridge_client import BridgeClient
from runner.cluster.cluster import Cluster
from runner.cluster.deployment import BundleOrigin, Deployment, ReplicaSpec
from runner.errors import CapacityError
from runner.library.library import Library
from runner.models.lease import AskedModel
from runner.settings import Settings
from runner.types import LoadPlan
from runner.worker.json_codec import to_json
from tests.conftest import install_models

OLD = "sha256:" + "0" * 64
HERE = "this-node"


class Bridge:
    """A bridge to a cluster on which echo was deployed."""

    def __init__(self, origin: BundleOrigin) -> None:
        self.spec = ReplicaSpec(Deployment("echo", cpus=3), origin, "1").to_json()

    async def call(self, op: str, **_: Any) -> Any:
        told = {
            "specs": {"echo": self.spec},
            "offer": {"url": "http://127.0.0.1:1", "node": HERE},
            "describe": {"plan": to_json(LoadPlan("x", "echo", 4096, 8192, 16))},
        }
        return told[op]


class Deploying(Cluster):
    """Keeps what it is asked to deploy. full: there is no room."""

    def __init__(self, home: Path, origin: BundleOrigin) -> None:
        settings = Settings(home=home)
        store = Store.open(home / "models", read_only=True)
        super().__init__(settings, Library(store, settings, "1"), "1", self._forgotten)
        self.asked = AskedModel.of(self._library.read(self._library.find("echo")), {}, settings)
        self.link, self.deployed, self.full = Bridge(origin), list[Deployment](), False

    async def _forgotten(self, _: str) -> None: ...

    async def _client(self) -> BridgeClient:
        return cast("BridgeClient", self.link)

    async def deploy(self, wanted: Deployment) -> dict[str, Any]:
        self.deployed.append(wanted)
        if self.full:
            raise CapacityError("there is no room", retry_after_s=1)
        return {}

    async def settled(self) -> None:
        """Place the model, and wait for what that began."""
        assert await self.place(self.asked) is not None
        await asyncio.gather(*self._tasks)


def origin_of(home: Path, **other: str) -> BundleOrigin:
    """Of a model that this daemon has deployed, but for other."""
    folder = str((home / "models").resolve())
    given = {"digest": OLD, "folder": folder, "node": HERE, **other}
    return BundleOrigin("echo", url="http://127.0.0.1:1", **given)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    install_models(tmp_path, ["echo"])
    return tmp_path


async def test_a_model_that_has_become_another_is_deployed_as_it_was(home: Path) -> None:
    cluster = Deploying(home, origin_of(home))
    await cluster.settled()
    assert cluster.deployed == [Deployment("echo", cpus=3)]


async def test_the_same_model_is_not_deployed_again(home: Path) -> None:
    cluster = Deploying(home, origin_of(home))
    cluster.link = Bridge(origin_of(home, digest=cluster.asked.digest))
    await cluster.settled()
    assert cluster.deployed == []


@pytest.mark.parametrize("other", [{"node": "another"}, {"folder": "/elsewhere"}])
async def test_what_another_daemon_has_deployed_stays(
    home: Path, other: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Deploying(home, origin_of(home, **other))
    await cluster.settled()
    assert cluster.deployed == []
    assert "echo: the cluster has sha256:000000000000" in caplog.text


async def test_two_requests_deploy_once_and_a_failure_is_tried_again_by_the_next(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Deploying(home, origin_of(home))
    cluster.full = True
    await asyncio.gather(cluster.place(cluster.asked), cluster.place(cluster.asked))
    await asyncio.gather(*cluster._tasks)
    assert len(cluster.deployed) == 1
    assert "its replicas go on: there is no room" in caplog.text
    await cluster.settled()
    assert len(cluster.deployed) == 2
