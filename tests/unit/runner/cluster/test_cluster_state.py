"""What a daemon keeps of its deployments, beside other daemons and after the head was lost."""

from __future__ import annotations

from pathlib import Path

from runner.cluster.cluster_state import (
    KeptDeployment,
    merged,
    read_deployments,
    write_deployments,
)

OLD, NEW = {"cpus": 1}, {"cpus": 2}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    kept = {"echo": KeptDeployment(OLD, "here")}
    write_deployments(tmp_path, kept)
    assert read_deployments(tmp_path) == kept


def test_a_file_of_another_form_holds_nothing(tmp_path: Path) -> None:
    assert read_deployments(tmp_path) == {}
    path = tmp_path / "cluster-deployments.json"
    for content in ("", "[]", '{"echo": {"deployment": {}}}', '{"echo": 1}'):
        path.write_text(content)
        assert read_deployments(tmp_path) == {}


def test_a_change_by_another_daemon_is_taken_over() -> None:
    kept = {"echo": KeptDeployment(OLD, "here")}
    known = {"echo": NEW, "other": OLD}
    assert merged(kept, known, "here") == {"echo": KeptDeployment(NEW, "here")}


def test_what_another_daemon_has_undeployed_is_forgotten() -> None:
    kept = {"echo": KeptDeployment(OLD, "here"), "ember": KeptDeployment(OLD, "here")}
    assert merged(kept, {"ember": OLD}, "here") == {"ember": KeptDeployment(OLD, "here")}


def test_what_a_new_head_does_not_know_is_kept() -> None:
    kept = {"echo": KeptDeployment(OLD, "before")}
    assert merged(kept, {}, "here") == kept
    assert merged(kept, {"echo": OLD}, "here") == {"echo": KeptDeployment(OLD, "here")}
