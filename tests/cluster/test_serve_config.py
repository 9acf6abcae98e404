"""The example for KubeRay in docs/cluster.md is one that Ray Serve accepts, and what it deploys."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.conformance.sources import REPOSITORY

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


def test_the_arguments_of_the_manifest_make_a_deployment(manifest: dict[str, Any]) -> None:
    from runner.cluster.app import DEPLOYMENT, build
    from runner.cluster.deployment import Deployment

    config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
    application = build(config["applications"][0]["args"])
    deployment = application._bound_deployment
    assert deployment.name == DEPLOYMENT
    given = config["applications"][0]["args"]["deployment"]
    wanted = Deployment.of(given)
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
