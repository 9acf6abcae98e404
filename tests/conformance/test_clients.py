"""Clients of other people against a real daemon with ember. `make clients` installs them; those
that are not installed are skipped here."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.clients.daemon import serving
from tests.clients.programs import CLIENTS, Client, ask
from tests.conftest import RunningDaemon

NOTICED_S = 10.0  # a client that left


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    if not any(client.installed for client in CLIENTS):
        pytest.skip("make clients installs them")
    with serving(tmp_path_factory.mktemp("clients")) as running:
        yield running


def aborted(daemon: RunningDaemon) -> float:
    """How many requests ended because their client left."""
    with daemon.client() as http:
        families = text_string_to_metric_families(http.get("/metrics").text)
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels.get("finished_reason") == "abort"
    )


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_it_works_unchanged(client: Client, daemon: RunningDaemon) -> None:
    if not client.installed:
        pytest.skip("make clients installs it")
    before = aborted(daemon)
    done = ask(client, daemon.url)
    assert done.returncode == 0, done.stdout
    assert "ok     an unknown model is not found\n" in done.stdout
    if client.leaves_early:
        limit = time.monotonic() + NOTICED_S
        while aborted(daemon) == before:
            assert time.monotonic() < limit, "nobody noticed that the client left"
