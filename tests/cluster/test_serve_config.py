"""The example for KubeRay in docs/cluster.md is one that Ray Serve accepts, and what it deploys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from runner.cluster.environment import ray_environment
from tests.cluster.machines import START_S, Machines, wait_for
from tests.conformance.sources import REPOSITORY
from tests.conftest import install_models

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    """The only RayService of the page."""
    text = (REPOSITORY / "docs/cluster.md").read_text("utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]
    (found,) = (each for each in map(yaml.safe_load, blocks) if each.get("kind") == "RayService")
    return dict(found)


def test_serve_accepts_the_applications_of_the_manifest(manifest: dict[str, Any]) -> None:
    from ray.serve.schema import ServeDeploySchema

    config = ServeDeploySchema.model_validate(yaml.safe_load(manifest["spec"]["serveConfigV2"]))
    (application,) = config.applications
    assert application.import_path == "runner.cluster.app:build"
    assert application.route_prefix is None


def test_the_arguments_of_the_manifest_make_a_deployment(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    from runner.cluster.app import DEPLOYMENT, build
    from runner.cluster.deployment import Deployment

    install_models(tmp_path, ["ember"])
    config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
    args = config["applications"][0]["args"]
    application = build({**args, "folder": str(tmp_path / "models")})
    deployment = application._bound_deployment
    assert deployment.name == DEPLOYMENT
    given = config["applications"][0]["args"]
    wanted = Deployment.of({name: value for name, value in given.items() if name != "folder"})
    assert deployment.ray_actor_options["num_cpus"] == wanted.cpus == 4
    scaling = deployment._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (2, 8)


def test_the_manifest_names_the_version_of_ray_that_is_installed(manifest: dict[str, Any]) -> None:
    import ray

    cluster = manifest["spec"]["rayClusterConfig"]
    assert cluster["rayVersion"] == ray.__version__
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    groups = cluster["workerGroupSpecs"]
    assert all(each["template"]["spec"]["containers"] for each in groups)


def serve_run(machines: Machines, path: Path) -> None:
    """Give Serve a config, which it takes in the background, as KubeRay's operator does."""
    head = machines.nodes[0]
    environment = ray_environment(Path(head.state["token"]))
    ran = subprocess.run(
        [*(sys.executable, "-P", "-m", "ray.serve.scripts"), "run", "--non-blocking", str(path)],
        env={**environment, "RAY_ADDRESS": head.state["address"]},
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert ran.returncode == 0, ran.stderr


def test_serve_deploys_what_the_daemons_of_the_cluster_then_know(
    manifest: dict[str, Any], machines: Machines, tmp_path: Path
) -> None:
    config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
    (application,) = config["applications"]
    application["name"] = "echo"
    folder = str(machines.nodes[0].home / "models")
    application["args"] |= {"model": "echo", "replicas": 1, "cpus": 1, "folder": folder}
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    serve_run(machines, path)
    wait_for(lambda: machines.replicas("echo"), "a replica", START_S)
    machines.warm("echo", 1)
    (replica,) = machines.replicas("echo")
    serve_run(machines, path)  # the same: nothing changes
    assert machines.chat("echo", "again").status_code == 200
    assert [each["pid"] for each in machines.replicas("echo")] == [replica["pid"]]
    assert machines.status("ember") is not None
    path.write_text(yaml.safe_dump({**config, "applications": []}))
    serve_run(machines, path)
    wait_for(lambda: not psutil.pid_exists(replica["pid"]), "it has gone", START_S)
    answer = machines.chat("echo", "here now")
    assert answer.status_code == 200, answer.text
    assert machines.status("echo") is None
    assert machines.status("ember") is not None
