"""A date that jumps by 400 days, forwards or back, beside what is kept for a time."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.attack.test_owners import SLOW, begin_batch, line, until_status, upload
from tests.conftest import StartDaemon

JUMP_S = 400 * 86400


def respond(http: httpx.Client) -> str:
    asked = http.post("/v1/responses", json={"model": "echo", "input": "hello"})
    assert asked.status_code == 200, asked.text
    return str(asked.json()["id"])


@pytest.mark.parametrize(
    ("jump_s", "restart"),
    [
        (JUMP_S, True),
        (-JUMP_S, False),
        pytest.param(JUMP_S, False, marks=pytest.mark.slow),
        pytest.param(-JUMP_S, True, marks=pytest.mark.slow),
    ],
)
def test_nothing_that_is_stored_goes_when_the_date_jumps(
    start_daemon: StartDaemon, tmp_path: Path, jump_s: int, restart: bool
) -> None:
    date = tmp_path / "date"
    date.write_text("0")
    daemon = start_daemon(env={"DATE_FILE": str(date)})
    with daemon.client() as http:
        response = respond(http)
        short_lived = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
        form = {"purpose": "user_data", **short_lived}
        file = http.post("/v1/files", files={"file": ("f", b"x")}, data=form).json()["id"]
        done, _ = begin_batch(http, line("1", "hi"))
        until_status(http, f"/v1/batches/{done}", "completed")
        under_way, _ = begin_batch(http, line("1", SLOW, ignore_eos=True, max_tokens=3000))
        until_status(http, f"/v1/batches/{under_way}", "in_progress")
    if restart:
        daemon.stop()
        date.write_text(str(jump_s))
        daemon = start_daemon(home=daemon.home, env={"DATE_FILE": str(date)})
    else:
        date.write_text(str(jump_s))
    with daemon.client() as http:
        respond(http)  # what is kept for too long goes with the next one
        again, _ = begin_batch(http, line("1", "hi"))
        until_status(http, f"/v1/batches/{again}", "completed")
        upload(http, b"y")
        assert http.get(f"/v1/responses/{response}").status_code == 200
        assert http.get(f"/v1/files/{file}/content").content == b"x"
        assert http.get(f"/v1/batches/{done}").json()["status"] == "completed"
        assert http.get(f"/v1/batches/{under_way}").json()["status"] == "in_progress"
        assert http.post(f"/v1/batches/{under_way}/cancel").status_code == 200
