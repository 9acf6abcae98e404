"""What OpenAI has and hearth has not is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import openai
import pytest

from runner.server.app import ROUTES
from runner.server.openai.absent_routes import ABSENT, advice_for
from tests.conftest import RunningDaemon

CALLS: list[tuple[Callable[[openai.OpenAI], object], str]] = [
    (lambda sdk: sdk.moderations.create(input="x"), "Llama Guard"),
    (lambda sdk: sdk.images.generate(prompt="x"), "use another server for images"),
    (lambda sdk: sdk.fine_tuning.jobs.list(), "adapter"),
    (lambda sdk: sdk.chat.completions.retrieve("chatcmpl-1"), "not stored"),
    (lambda sdk: sdk.containers.list(), "does not run code"),
]


def test_none_of_them_is_there() -> None:
    served = {path.path for path in ROUTES}
    hidden = {path for path in served if advice_for(path) is not None}
    chats = {path for path in hidden if path.startswith("/v1/chat/completions")}
    assert hidden == chats, "what is served comes first; all else below it is absent"
    assert advice_for("/v1/imagesque") is None


def test_all_of_them_say_what_to_do(client: httpx.Client) -> None:
    for path, advice in ABSENT.items():
        error = client.get(f"{path}/x").json()["error"]
        assert error["code"] == "endpoint_not_supported"
        assert error["message"] == f"hearth has no {path}/x: {advice}"


@pytest.mark.parametrize(("call", "said"), CALLS)
def test_the_sdk_shows_it(
    shared_daemon: RunningDaemon, call: Callable[[openai.OpenAI], object], said: str
) -> None:
    with (
        openai.OpenAI(base_url=f"{shared_daemon.url}/v1", api_key="none") as sdk,
        pytest.raises(openai.NotFoundError, match=said),
    ):
        call(sdk)
