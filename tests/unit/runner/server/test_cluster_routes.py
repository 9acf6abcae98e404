"""The body of a deployment has the fields of one, and no defaults of its own."""

from __future__ import annotations

from dataclasses import fields

from runner.cluster.deployment import Deployment
from runner.server.cluster_routes import DeployBody


def test_the_fields_are_those_of_a_deployment() -> None:
    assert set(DeployBody.model_fields) == {item.name for item in fields(Deployment)}


def test_what_is_left_out_is_left_to_the_deployment() -> None:
    body = DeployBody.model_validate({"model": "m", "cpus": 3})
    assert body.model_dump(exclude_none=True) == {"model": "m", "cpus": 3}
    assert Deployment.of(body.model_dump(exclude_none=True)) == Deployment("m", cpus=3)
