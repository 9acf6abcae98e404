"""What may be deployed, and what a cluster can hold of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.cluster.deployment import BundleOrigin, Deployment, ReplicaSpec, replica_range
from runner.cluster.fit import Held, Need, NodeFacts, check
from runner.errors import Conflict, InsufficientMemory, InvalidRequest

GIB = 1 << 30
NODE = NodeFacts("n" * 56, "10.0.0.1", "1.0", 4, 0, 4, 0, 8 * GIB, 100 * GIB)
NEED = Need(2 * GIB, lambda free: None if free >= 3 * GIB else f"needs 3 GiB, {free} are free")


def test_a_range_of_replicas_is_read() -> None:
    assert replica_range("2..8") == (2, 8)
    assert replica_range(3) == (3, 3)
    with pytest.raises(InvalidRequest, match=r"'two'"):
        replica_range("two")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("cpus", 0, "cpus is 0"),
        ("max_replicas", 65, "at most 64"),
        ("min_replicas", -1, "min_replicas is -1"),
        ("gpus", float("nan"), "gpus is nan"),
        ("gpus", 1.5, "gpus is 1.5; more than one are whole GPUs"),
        ("target_ongoing", 0, "target_ongoing is 0"),
        ("color", "red", "'color' is not a setting"),
    ],
)
def test_bad_values_are_refused_by_name(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as refused:
        Deployment.of({"model": "m", field: value})
    assert refused.value.details["param"] == field


def test_more_than_the_most_replicas_cannot_be_the_least() -> None:
    with pytest.raises(InvalidRequest, match="max_replicas is 2, less than min_replicas, 4"):
        Deployment.of({"model": "m", "replicas": "4..2"})


def test_a_spec_crosses_as_json() -> None:
    origin = BundleOrigin("m", "sha256:1", "http://head:1", "/models")
    spec = ReplicaSpec(Deployment("m", 0, 3, cpus=2), origin, "1.0", {"kv_cache_type": "q8_0"})
    assert ReplicaSpec.of(spec.to_json()) == spec


def test_a_cluster_with_room_is_taken() -> None:
    check(Deployment("m", 2, 2, cpus=2), [NODE], "1.0", NEED)


def test_too_few_cores_are_refused_with_the_numbers() -> None:
    wanted = Deployment("m", 3, 3, cpus=4)
    with pytest.raises(InsufficientMemory, match="3 replicas are wanted and 1 have a place"):
        check(wanted, [NODE, replace(NODE, free_cpus=3)], "1.0", NEED)
    with pytest.raises(InsufficientMemory, match="has 3 of 4 cores free, a replica takes 4"):
        check(wanted, [NODE, replace(NODE, free_cpus=3)], "1.0", NEED)


def test_too_few_gpus_are_refused() -> None:
    with pytest.raises(InsufficientMemory, match="0 of 0 GPUs free, a replica takes 1 and 1 GPUs"):
        check(Deployment("m", gpus=1), [NODE], "1.0", NEED)


def test_a_node_without_disk_for_the_bundle_holds_none() -> None:
    full = replace(NODE, disk_bytes=GIB)
    with pytest.raises(InsufficientMemory, match=r"has 1\.0 GiB of disk free.*takes 2\.0 GiB"):
        check(Deployment("m"), [full], "1.0", NEED)
    check(Deployment("m", shared=True), [full], "1.0", NEED)


def test_a_node_without_memory_for_the_model_says_what_it_needs() -> None:
    small = replace(NODE, memory_bytes=GIB)
    with pytest.raises(InsufficientMemory, match="needs 3 GiB"):
        check(Deployment("m"), [small], "1.0", NEED)


def test_memory_is_shared_by_the_replicas_of_a_node() -> None:
    with pytest.raises(InsufficientMemory, match=r"3 replicas are wanted and 2 .*no memory for mo"):
        check(Deployment("m", 3, 3), [NODE], "1.0", NEED)


def test_a_node_of_another_version_is_refused_by_name() -> None:
    old = replace(NODE, version="0.9")
    with pytest.raises(Conflict, match=r"must have hearth 1\.0, but 10\.0\.0\.1 .* has 0\.9"):
        check(Deployment("m"), [NODE, old], "1.0", NEED)


def test_a_node_that_does_not_answer_holds_none() -> None:
    with pytest.raises(InsufficientMemory, match="does not answer"):
        check(Deployment("m"), [replace(NODE, version="")], "1.0", NEED)


SPLIT = replace(NEED, ranks=2)
TWO = [NODE, replace(NODE, id="m" * 56, address="10.0.0.2")]


def test_the_processes_of_a_model_share_a_node_that_holds_them_all() -> None:
    assert check(Deployment("m", cpus=4), TWO, "1.0", SPLIT) == 1
    assert check(Deployment("m", 2, 2, cpus=4), TWO, "1.0", SPLIT) == 1


def test_the_processes_of_a_model_that_no_node_holds_go_to_several() -> None:
    assert check(Deployment("m", cpus=8), TWO, "1.0", SPLIT) == 2
    small = [replace(node, memory_bytes=2 * GIB) for node in TWO]
    assert check(Deployment("m", cpus=4), small, "1.0", SPLIT) == 2


def test_a_deployment_on_several_nodes_stays_there() -> None:
    busy = [replace(node, free_cpus=0) for node in TWO]
    assert check(Deployment("m", cpus=8), busy, "1.0", SPLIT, Held(1, 2)) == 2
    with pytest.raises(InsufficientMemory, match="4 processes are wanted, 2 for each replica, and"):
        check(Deployment("m", 2, 2, cpus=8), busy, "1.0", SPLIT, Held(1, 2))


def test_a_model_that_no_nodes_hold_together_is_refused_with_the_numbers() -> None:
    refused = r"2 processes are wanted, 2 for each replica, and 1 have a place: .* place for 1; .*"
    with pytest.raises(InsufficientMemory, match=rf"{refused}2 of 4 cores free, a process takes 4"):
        check(Deployment("m", cpus=8), [NODE, replace(TWO[1], free_cpus=2)], "1.0", SPLIT)
    small = [replace(node, memory_bytes=GIB) for node in TWO]
    with pytest.raises(InsufficientMemory, match=r"0 have .* needs 3 GiB, 2147483648 are"):
        check(Deployment("m", cpus=8), small, "1.0", SPLIT)
    full = replace(TWO[1], disk_bytes=GIB)
    with pytest.raises(InsufficientMemory, match=r"1 have a place: .*GiB of disk free"):
        check(Deployment("m", cpus=8), [NODE, full], "1.0", SPLIT)


def test_cores_that_the_processes_cannot_share_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"cpus is 7; no node .* must be a multiple of 2"):
        check(Deployment("m", cpus=7), TWO, "1.0", SPLIT)


def test_several_nodes_do_not_share_a_model_on_gpus() -> None:
    nodes = [replace(node, gpus=1, free_gpus=1) for node in TWO]
    with pytest.raises(InsufficientMemory, match="1 replicas are wanted and 0 have a place"):
        check(Deployment("m", gpus=2), nodes, "1.0", SPLIT)
