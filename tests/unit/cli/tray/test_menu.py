"""What the tray's menu offers."""

from __future__ import annotations

from cli.tray.daemon_state import DaemonState, LoadedModel
from cli.tray.menu import entries


def test_each_model_is_there_with_its_memory_and_can_be_unloaded() -> None:
    state = DaemonState(
        is_running=True,
        models=(
            LoadedModel("ember", 75_000_000),
            LoadedModel("ember-copy", None),
            LoadedModel("big", 2_000_000_000, is_loading=True),
        ),
    )
    shown = entries(state)
    assert [(entry.label, entry.words) for entry in shown if entry.key.startswith("unload ")] == [
        ("Unload ember (75 MB)", ("stop", "--", "ember")),
        ("Unload ember-copy (shared)", ("stop", "--", "ember-copy")),
        ("Unload big (loading)", ("stop", "--", "big")),
        ("Unload all models", ("stop", "--all")),
    ]
    assert shown[0].label == "3 models in memory, 2.1 GB"
    assert len({entry.key for entry in shown}) == len(shown)


def test_only_what_can_be_done_is_enabled() -> None:
    def enabled(state: DaemonState) -> list[str]:
        return [e.label for e in entries(state) if e.is_enabled and not e.is_separator]

    assert enabled(DaemonState()) == ["Open page", "Quit tray"]
    assert enabled(DaemonState(is_running=True)) == ["Open page", "Stop hearth", "Quit tray"]


def test_a_fault_is_told_in_one_line() -> None:
    label = entries(DaemonState(fault="x" * 200 + "\nmore"))[0].label
    assert label == "x" * 79 + "…"
    assert entries(DaemonState())[0].label == "hearth is not running"
    assert entries(DaemonState(is_running=True))[0].label == "no model is in memory"
